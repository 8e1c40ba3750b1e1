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

// How far a job is, over all attempts, and where its data stands.
struct RunPosition {
  // A checkpoint holds its counters (kProgressCounters), loss, seconds and mode.
  training::v1::Progress progress;
  int64_t applied_steps = 0;  // Steps that were not skipped; schedules and averages count these.
  SamplerPosition sampler;
  uint64_t seed = 0;
  // Examples of a batch that `sampler` counts, over all ranks; 0 where the file does not say.
  int64_t batch_examples = 0;
};

// Position of the held-out evaluation.
struct EvaluationState {
  double best_loss = std::numeric_limits<double>::infinity();
  int64_t best_step = 0;
  int32_t without_improvement = 0;
};

// All that a run continues from, on the CPU and apart from the run's own tensors: once taken at a
// step boundary it can be written while training goes on.
struct TrainingState {
  std::vector<std::pair<std::string, at::Tensor>> model;  // Parameters, then buffers; float32.
  // Second names in Python's state_dict(), each with the entry of `model` that it shares.
  std::vector<std::pair<std::string, std::string>> tied;
  // Version numbers of a user's module and its parts, by their names: state_dict()._metadata.
  std::vector<std::pair<std::string, int64_t>> versions;
  // Values that a user's module keeps outside of its state_dict(), by the names of attributes.
  std::vector<std::pair<std::string, at::Tensor>> attributes;
  // Buffers that had infinities before the first step, as masks have; they may have them.
  std::set<std::string> with_infinities;
  OptimizerState optimizer;
  // Moving average of the parameters, under their names; empty where there is none.
  std::vector<std::pair<std::string, at::Tensor>> ema;
  std::optional<GradScalerState> scaler;  // nullopt if the mode has no loss scale.
  at::Tensor rng_state;                   // torch's generator on the CPU.
  at::Tensor device_rng_state;            // The device's; undefined on a CPU.
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

// Name of the first tensor that holds a NaN, or an Inf that may not be there, or "". Such a state
// is never written. Waits until the state is complete.
std::string FirstNonFinite(const TrainingState& state);

}  // namespace genesis
