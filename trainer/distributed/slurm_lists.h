#pragma once

#include <string>

namespace genesis {

// Parsers of the lists that Slurm sets in the environment of a step (srun, "OUTPUT ENVIRONMENT
// VARIABLES").

// Returns the first host of SLURM_STEP_NODELIST: "node3" of "node[3-5,9],gpu1". Empty if the text
// is not a list.
std::string FirstHost(const std::string& list);

// Returns the number of tasks on host number `node` from SLURM_STEP_TASKS_PER_NODE: "2(x3),1" gives
// 2, 2, 2 and 1. Returns 1 if the list lacks the host.
int TasksOfNode(const std::string& list, int node);

}  // namespace genesis
