#pragma once

#include <cstdint>
#include <string>

#include "absl/status/statusor.h"
#include "base/environment.h"

namespace genesis {

// Which of the processes ("ranks") that train one job together this one is, in the variables that
// its launcher sets: torchrun (torch.distributed.run, "Environment Variables"), Open MPI's mpirun,
// mpiexec of MPICH and Intel MPI, or Slurm's srun. The first of them that is there counts, so that
// torchrun may be started by srun.
struct RankPlace {
  int rank = 0;         // RANK, 0 to size - 1.
  int size = 1;         // WORLD_SIZE; 1: the process is alone.
  int local_rank = 0;   // LOCAL_RANK, among those of this host.
  int local_size = 1;   // LOCAL_WORLD_SIZE, how many those are.
  std::string gpu;      // That is its own: number local_rank of CUDA_VISIBLE_DEVICES, or of all.
  std::string address;  // MASTER_ADDR, the host where the store is.
  uint16_t port = 0;    // MASTER_PORT
  bool agent_store = false;  // TORCHELASTIC_USE_AGENT_STORE: torchrun serves it, else rank 0 does.
  // The address of this host that Gloo listens on. Empty: as GLOO_SOCKET_IFNAME or the host's name
  // says.
  std::string listen;
  // The prefix that tells the stores of one attempt from those of another: TORCHELASTIC_RUN_ID and
  // TORCHELASTIC_RESTART_COUNT, or of Slurm job, step and restart.
  std::string attempt;
  std::string size_variable = "WORLD_SIZE";  // The name of the launcher's, for messages.
};

// Throws RunFailure (FAILURE_CAUSE_WORKER_EXIT): "rank 1 of 4 cannot <task>: <why>".
[[noreturn]] void FailAs(const RankPlace& place, const char* task, const std::string& why);

// INVALID_ARGUMENT names each variable that is missing or cannot be, with what is accepted.
absl::StatusOr<RankPlace> ReadRankPlace(const Environment& environment);

}  // namespace genesis
