#pragma once

#include <ATen/ATen.h>

#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "trainer/checkpoint/training_state.h"

namespace genesis {

// Returns all numbers of a state, except tensors, as text that is equal for equal states.
inline std::string Numbers(const TrainingState& state) {
  const OptimizerState& optimizer = state.optimizer;
  const RunPosition& position = state.position;
  std::string text =
      absl::StrCat(optimizer.kind, " ", optimizer.beta1, " ", optimizer.beta2, " ",
                   optimizer.epsilon, " ", optimizer.momentum, " ", optimizer.nesterov);
  for (const OptimizerGroup& group : optimizer.groups) {
    absl::StrAppend(&text, "; ", group.learning_rate, " ", group.scheduled_learning_rate, " ",
                    group.weight_decay, " of ", absl::StrJoin(group.parameters, ","));
  }
  absl::StrAppend(&text, "; ", position.progress.ShortDebugString(), " ", position.applied_steps,
                  " ", position.sampler.epoch, " ", position.sampler.batch, " ", position.seed);
  absl::StrAppend(&text, "; ", state.policy.promotions, " ", state.policy.clean_steps, " ",
                  absl::StrJoin(state.policy.left, ","), "; ", state.evaluation.best_loss, " ",
                  state.evaluation.best_step, " ", state.evaluation.without_improvement, "; ");
  if (state.scaler) {
    const GradScalerState& scaler = *state.scaler;
    absl::StrAppend(&text, scaler.scale, " ", scaler.growth_factor, " ", scaler.backoff_factor, " ",
                    scaler.growth_interval, " ", scaler.growth_tracker, " ",
                    scaler.hysteresis_left);
  }
  return text;
}

// Returns how two states that were read from files differ; "" if they are equal.
inline std::string Difference(const TrainingState& one, const TrainingState& other) {
  using Tensors = std::vector<std::pair<std::string, at::Tensor>>;
  const auto same = [](const at::Tensor& a, const at::Tensor& b) {
    return a.defined() == b.defined() &&
           (!a.defined() || (a.scalar_type() == b.scalar_type() && at::equal(a, b)));
  };
  const auto all_same = [&](const Tensors& a, const Tensors& b) {
    if (a.size() != b.size()) return false;
    for (size_t i = 0; i < a.size(); ++i) {
      if (a[i].first != b[i].first || !same(a[i].second, b[i].second)) return false;
    }
    return true;
  };
  if (!all_same(one.model, other.model)) return "model";
  if (one.tied != other.tied) return "tied";
  if (!all_same(one.attributes, other.attributes)) return "attributes";
  if (!all_same(one.ema, other.ema)) return "ema";
  if (one.optimizer.parameters.size() != other.optimizer.parameters.size()) return "optimizer";
  for (size_t i = 0; i < one.optimizer.parameters.size(); ++i) {
    if (!all_same(one.optimizer.parameters[i], other.optimizer.parameters[i])) return "optimizer";
  }
  if (!same(one.rng_state, other.rng_state)) return "rng_state";
  if (!same(one.device_rng_state, other.device_rng_state)) return "device_rng_state";
  if (!same(one.priorities, other.priorities)) return "priorities";
  if (one.scaler.has_value() != other.scaler.has_value()) return "scaler";
  const std::string numbers = Numbers(one);
  const std::string others = Numbers(other);
  return numbers == others ? "" : absl::StrCat(numbers, " is not ", others);
}

}  // namespace genesis
