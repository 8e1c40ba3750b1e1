#pragma once

#include <ATen/ATen.h>

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "genesis/training/v1/job.pb.h"
#include "trainer/data/batch_sampler.h"
#include "trainer/optim/fused_adamw.h"
#include "trainer/precision/grad_scaler.h"

namespace genesis {

// How far a job is, over all attempts.
struct RunPosition {
  int64_t step = 0;
  int64_t samples = 0;
  int64_t skipped_steps = 0;
  int64_t reduced_precision_steps = 0;
  SamplerPosition sampler;
  uint64_t seed = 0;
  double loss = 0;
  training::v1::PrecisionMode mode = training::v1::PRECISION_MODE_FP32;
};

// All that a run continues from, on the CPU and apart from the run's own tensors: once taken at a
// step boundary it can be written while training goes on.
struct TrainingState {
  std::vector<std::pair<std::string, at::Tensor>> model;  // Parameters, then buffers; float32.
  std::vector<AdamWParameterState> optimizer;             // In the order of the parameters.
  AdamWOptions optimizer_options;
  std::optional<GradScalerState> scaler;  // Where the mode has a loss scale.
  at::Tensor rng_state;                   // Of torch's generator on the CPU.
  RunPosition position;
};

// Name of the first tensor that holds a NaN or an Inf, or "". Such a state is never written.
std::string FirstNonFinite(const TrainingState& state);

}  // namespace genesis
