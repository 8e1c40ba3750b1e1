#pragma once

#include <torch/csrc/distributed/c10d/Backend.hpp>

#include <atomic>
#include <thread>

namespace genesis {

// A watch on the connection to the rank before this one: a thread waits for a message that never
// comes, and learns of the connection's end as soon as the kernel does. Where every rank
// watches the one before it, and leaves when that has gone, all of them learn of the end of one. A
// rank that is stopped or cut off keeps its connection.
//
// Owner: the RankGroup. Threads: any.
class NeighbourWatch {
 public:
  // `gloo` outlives it. Requires more than one rank.
  explicit NeighbourWatch(c10d::Backend& gloo);
  ~NeighbourWatch();
  NeighbourWatch(const NeighbourWatch&) = delete;
  NeighbourWatch& operator=(const NeighbourWatch&) = delete;

  bool gone() const { return gone_; }

 private:
  c10::intrusive_ptr<c10d::Work> message_;
  std::atomic<bool> gone_ = false;
  std::thread thread_;
};

}  // namespace genesis
