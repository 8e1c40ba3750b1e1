#pragma once

#include <string>

#include "genesis/training/v1/job.pb.h"

namespace genesis {

inline constexpr char kOptimizerKindPrefix[] = "OPTIMIZER_KIND_";

// Returns "ADAMW", "ADAM" or "SGD".
inline std::string OptimizerName(training::v1::OptimizerKind kind) {
  return training::v1::OptimizerKind_Name(kind).substr(sizeof(kOptimizerKindPrefix) - 1);
}

}  // namespace genesis
