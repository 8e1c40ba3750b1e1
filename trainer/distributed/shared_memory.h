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

// Memory that the ranks of one host map: a region of each rank, a region common to all, and
// counters for waiting. A rank holds a kernel lock as long as it lives, which distinguishes a
// killed rank from a slow one (fcntl(2), open file description locks; futex(2)).
//
// Owner: a SharedMemoryTransport. Threads: one. Failure: see each method.
class SharedMemory {
 public:
  struct Size {
    int ranks = 0;
    size_t counters = 0;  // Per rank.
    size_t bytes = 0;     // Per rank.
    size_t common = 0;    // Bytes. Takes no memory until it is written.
  };
  // The memory's path, /proc/<process>/fd/<descriptor>, and a random number that verifies it.
  struct Address {
    int process = 0;
    int descriptor = 0;
    uint64_t cookie = 0;
  };

  // Returns RESOURCE_EXHAUSTED if the host has no memory for it.
  static absl::StatusOr<std::unique_ptr<SharedMemory>> Create(const Size& size, int rank);
  // Returns UNAVAILABLE if that process is not accessible: on another host, in another container,
  // or another user's.
  static absl::StatusOr<std::unique_ptr<SharedMemory>> Open(const Address& address,
                                                            const Size& size, int rank);
  ~SharedMemory();
  SharedMemory(const SharedMemory&) = delete;
  SharedMemory& operator=(const SharedMemory&) = delete;

  // Returns the address that the creator sends to the other ranks.
  Address address() const;

  std::byte* region(int rank) const;
  // Returns the region common to all ranks, initially zeros.
  std::byte* common() const;
  // Counters begin at 0. A rank sets only its own.
  uint32_t counter(int rank, size_t number) const;
  void Set(size_t number, uint32_t value);
  // A callback during a wait: `tell` receives the seconds waited so far, first after `first` and
  // then each time that they have doubled.
  struct Reminder {
    std::chrono::milliseconds first = std::chrono::seconds(30);
    std::function<void(double seconds)> tell = [](double) {};
  };
  // Waits until the counter of the rank is `value`. Returns "" or the reason for giving up: "has
  // ended", or "has been silent for ... s".
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
  const size_t rank_bytes_;  // Includes its counters.
  std::byte* memory_ = nullptr;
};

}  // namespace genesis
