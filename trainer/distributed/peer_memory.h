#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "trainer/distributed/rank_group.h"

namespace genesis {

// A reader of the memory of a host's other ranks, in place (process_vm_readv(2)). The kernel
// permits it between processes of one user, unless Yama (kernel.yama.ptrace_scope) or a system call
// filter forbids it.
//
// Owner: a SharedMemoryTransport; the ranks outlive it. Threads: any, except for construction.
// Failure: RunFailure of the ranks.
class PeerMemory {
 public:
  // Collective: every rank tries to read from every other.
  explicit PeerMemory(RankGroup& ranks);

  // The reason why memory cannot be read this way, the same on all ranks; empty if every rank can
  // read the memory of every other rank.
  const std::string& why_not() const { return why_not_; }
  // Copies `bytes` bytes from a rank's memory to `to`. Throws if that fails or the rank has ended.
  void Read(int rank, uint64_t address, void* to, size_t bytes) const;

 private:
  std::string Find(const std::string& told);

  RankGroup& ranks_;
  const uint64_t cookie_;  // Other ranks check that they read this number.
  std::vector<int> processes_;
  std::string why_not_;
};

}  // namespace genesis
