#pragma once

#include <string>

namespace genesis {

// Lists as Slurm writes them into the environment of a step (srun, "OUTPUT ENVIRONMENT VARIABLES").

// The first host of SLURM_STEP_NODELIST: "node3" of "node[3-5,9],gpu1". Empty where it is no list.
std::string FirstHost(const std::string& list);

// The tasks on the host with number `node` by SLURM_STEP_TASKS_PER_NODE: of "2(x3),1" those are 2,
// 2, 2 and 1. 1 where the list does not say.
int TasksOfNode(const std::string& list, int node);

}  // namespace genesis
