#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "trainer/distributed/rank_group.h"

namespace genesis {

// The memory of the other ranks of a host, read where it lies (process_vm_readv(2)). The kernel
// grants it to processes of one user, unless Yama (kernel.yama.ptrace_scope) or a filter of system
// calls says no.
//
// Owner: a SharedMemoryTransport; the ranks outlive it. Threads: any, but for construction.
// Failure: RunFailure of the ranks.
class PeerMemory {
 public:
  // Called by all ranks together: each tries to read of each.
  explicit PeerMemory(RankGroup& ranks);

  // Why memory is not read so, the same on all ranks; empty where each can read that of each.
  const std::string& why_not() const { return why_not_; }
  // `bytes` at an address of the rank. Fails where it has ended.
  void Read(int rank, uint64_t address, void* to, size_t bytes) const;

 private:
  std::string Find(const std::string& told);

  RankGroup& ranks_;
  const uint64_t cookie_;  // What others find here.
  std::vector<int> processes_;
  std::string why_not_;
};

}  // namespace genesis
