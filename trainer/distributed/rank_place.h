#pragma once

#include <cstdint>
#include <string>

#include "absl/status/statusor.h"
#include "base/environment.h"

namespace genesis {

// The place of this process among the processes ("ranks") that train one job together, read from
// the variables of its launcher: torchrun (torch.distributed.run, "Environment Variables"), Open
// MPI's mpirun, mpiexec of MPICH and Intel MPI, or Slurm's srun. The first launcher found takes
// precedence, so srun may start torchrun.
struct RankPlace {
  int rank = 0;         // RANK, 0 to size - 1.
  int size = 1;         // WORLD_SIZE; 1: the process is alone.
  int local_rank = 0;   // LOCAL_RANK, among the ranks of this host.
  int local_size = 1;   // LOCAL_WORLD_SIZE, the number of ranks of this host.
  std::string gpu;      // The rank's GPU: number local_rank of CUDA_VISIBLE_DEVICES, or of all.
  std::string address;  // MASTER_ADDR, the host of the store.
  uint16_t port = 0;    // MASTER_PORT
  bool agent_store = false;  // TORCHELASTIC_USE_AGENT_STORE: torchrun serves the store, not rank 0.
  // The address of this host on which Gloo listens. If empty, GLOO_SOCKET_IFNAME or the host's name
  // determines it.
  std::string listen;
  // The prefix that separates the stores of different attempts: TORCHELASTIC_RUN_ID and
  // TORCHELASTIC_RESTART_COUNT, or Slurm job, step and restart.
  std::string attempt;
  std::string size_variable = "WORLD_SIZE";  // Name of the variable for `size`, for messages.
};

// Throws RunFailure (FAILURE_CAUSE_WORKER_EXIT): "rank 1 of 4 cannot <task>: <why>".
[[noreturn]] void FailAs(const RankPlace& place, const char* task, const std::string& why);

// Returns INVALID_ARGUMENT with each variable that is missing or invalid, and what is accepted.
absl::StatusOr<RankPlace> ReadRankPlace(const Environment& environment);

}  // namespace genesis
