#pragma once

#include <ATen/ATen.h>

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "genesis/training/v1/job.pb.h"

namespace genesis {

// Returns 0 for -1: in an OptimizerSpec 0 selects the default, so -1 stands for 0.
inline double MinusOneIsZero(double value) { return value == -1 ? 0.0 : value; }

// Parameters that share their settings; an entry of torch's param_groups.
struct OptimizerGroup {
  double learning_rate = 1e-3;            // Rate without the schedule; "initial_lr" in Python.
  double scheduled_learning_rate = 1e-3;  // Rate with it, at the next step; "lr" in Python.
  double weight_decay = 0;
  std::vector<int64_t> parameters;  // Indices of the model's parameters.
};

// The state dict of torch.optim.AdamW, Adam or SGD.
struct OptimizerState {
  training::v1::OptimizerKind kind = training::v1::OPTIMIZER_KIND_ADAMW;
  double beta1 = 0.9;
  double beta2 = 0.999;
  double epsilon = 1e-8;
  double momentum = 0;
  bool nesterov = false;
  std::vector<OptimizerGroup> groups;
  // One per parameter, float32, in torch's order: step, exp_avg, exp_avg_sq for Adam and AdamW;
  // momentum_buffer, or nothing without momentum, for SGD.
  std::vector<std::vector<std::pair<std::string, at::Tensor>>> parameters;
};

}  // namespace genesis
