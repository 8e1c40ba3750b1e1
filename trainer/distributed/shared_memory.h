#pragma once

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "absl/status/statusor.h"

namespace genesis {

// Memory that the ranks of one host map: a region of each rank, one that is common to all, and
// counters by which they wait for each other. A rank holds a lock of the kernel for as long as
// it lives, so one that was killed is told from one that is slow (fcntl(2), open file description
// locks; futex(2)).
//
// Owner: a SharedMemoryTransport. Threads: one. Failure: see each method.
class SharedMemory {
 public:
  struct Size {
    int ranks = 0;
    size_t counters = 0;  // Of each rank.
    size_t bytes = 0;     // Of each rank.
    size_t common = 0;    // Bytes. Takes no memory before it is written to.
  };
  // How the others find it.
  struct Address {
    int process = 0;
    int descriptor = 0;
    uint64_t cookie = 0;
  };

  // RESOURCE_EXHAUSTED where the host has no memory for it.
  static absl::StatusOr<std::unique_ptr<SharedMemory>> Create(const Size& size, int rank);
  // UNAVAILABLE where that process cannot be looked into: it is on another host, in another
  // container, or another user's.
  static absl::StatusOr<std::unique_ptr<SharedMemory>> Open(const Address& address,
                                                            const Size& size, int rank);
  ~SharedMemory();
  SharedMemory(const SharedMemory&) = delete;
  SharedMemory& operator=(const SharedMemory&) = delete;

  // As its creator gives it to the others.
  Address address() const;

  std::byte* region(int rank) const;
  // Zeros at first.
  std::byte* common() const;
  // Counters begin at 0, and a rank sets its own alone.
  uint32_t counter(int rank, size_t number) const;
  void Set(size_t number, uint32_t value);
  // Hears how long a rank is awaited: after `first`, and each time twice as long has passed.
  struct Reminder {
    std::chrono::milliseconds first = std::chrono::seconds(30);
    std::function<void(double seconds)> tell = [](double) {};
  };
  // Until the counter of the rank is `value`. Returns "" or what the rank did instead: "has ended",
  // or "has been silent for ... s".
  std::string Await(int rank, size_t number, uint32_t value, std::chrono::milliseconds timeout,
                    const Reminder& reminder);

 private:
  struct Rank;

  SharedMemory(int descriptor, const Size& size, int rank);
  absl::Status Map();
  absl::Status HoldLock();
  bool lives(int rank) const;
  Rank& of(int rank) const;
  std::atomic<uint32_t>& word(int rank, size_t number) const;
  size_t bytes() const;

  const int descriptor_;
  const Size size_;
  const int rank_;
  const size_t rank_bytes_;  // With its counters.
  std::byte* memory_ = nullptr;
};

}  // namespace genesis
