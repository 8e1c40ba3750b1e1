#pragma once

#include <torch/csrc/distributed/c10d/Backend.hpp>

#include <atomic>
#include <thread>

namespace genesis {

// A watch on the connection to the preceding rank: a thread waits for a message that never comes,
// and wakes when the kernel reports the end of the connection. If every rank watches the preceding
// rank and leaves when it is gone, the end of one rank reaches all. A rank that is stopped or cut
// off keeps its connection.
//
// Owner: the RankGroup. Threads: any.
class NeighbourWatch {
 public:
  // `gloo` outlives the watch. Requires more than one rank.
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
