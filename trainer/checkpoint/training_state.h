#pragma once

#include <ATen/ATen.h>

#include <cstdint>
#include <limits>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "genesis/training/v1/job.pb.h"
#include "trainer/checkpoint/state_copy.h"
#include "trainer/data/batch_sampler.h"
#include "trainer/optim/optimizer_state.h"
#include "trainer/precision/grad_scaler.h"
#include "trainer/precision/policy.h"

namespace genesis {

// The progress of a job over all attempts, and its position in the data.
struct RunPosition {
  // A checkpoint holds its counters (kProgressCounters), loss, seconds and mode.
  training::v1::Progress progress;
  int64_t applied_steps = 0;    // Steps that were not skipped; schedules and averages count these.
  int64_t rate_reductions = 0;  // Plateaus that a PLATEAU schedule has reached.
  SamplerPosition sampler;
  uint64_t seed = 0;
  // Number of examples per batch that `sampler` counts, over all ranks; 0 if the file lacks it.
  int64_t batch_examples = 0;
};

// The newest evaluation, and the state of early stopping on the held-out loss.
struct EvaluationState {
  double best_loss = std::numeric_limits<double>::infinity();
  int64_t best_step = 0;
  int32_t without_improvement = 0;
  // Step of the newest evaluation. Not stored in files: a resumed run has evaluated nothing yet.
  int64_t newest_step = -1;
  std::optional<training::v1::Evaluation> newest;  // nullopt if there is none or nothing counted.
};

// Everything that a run needs to resume, in CPU tensors separate from the run's own. Taken at a
// step boundary, it can be written while training continues.
struct TrainingState {
  std::vector<std::pair<std::string, at::Tensor>> model;  // Parameters (float32), then buffers.
  // Additional names in Python's state_dict(), each with the entry of `model` that it shares.
  std::vector<std::pair<std::string, std::string>> tied;
  // Version numbers of a user's module and its parts, by name: state_dict()._metadata.
  std::vector<std::pair<std::string, int64_t>> versions;
  // Values that a user's module keeps outside of its state_dict(), by attribute name.
  std::vector<std::pair<std::string, at::Tensor>> attributes;
  // Buffers that had infinities before the first step, such as masks, and may keep them.
  std::set<std::string> with_infinities;
  OptimizerState optimizer;
  // Moving average of the parameters, by name; empty if there is none.
  std::vector<std::pair<std::string, at::Tensor>> ema;
  std::optional<GradScalerState> scaler;  // nullopt if the mode has no loss scale.
  at::Tensor rng_state;                   // State of torch's CPU generator.
  at::Tensor device_rng_state;            // State of the GPU's generator; undefined on a CPU.
  at::Tensor priorities;                  // float32 [examples]; undefined with uniform sampling.
  RunPosition position;
  PolicyState policy;
  EvaluationState evaluation;
  // If set, copies are still in flight. Call Complete() before reading any tensor.
  std::shared_ptr<const StateCopy> copy;

  void Complete() const {
    if (copy != nullptr) copy->Wait();
  }
};

// Returns the name of the first tensor with a NaN, or with an Inf outside of with_infinities; "" if
// none. A state with such a tensor is never written. Waits until the state is complete.
std::string FirstNonFinite(const TrainingState& state);

}  // namespace genesis
