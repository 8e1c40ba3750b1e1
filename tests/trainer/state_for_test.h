#pragma once

#include <ATen/ATen.h>
#include <ATen/CPUGeneratorImpl.h>

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "trainer/checkpoint/training_state.h"

namespace genesis {

// Returns a state with every field set, determined by the arguments: two layers and a buffer, an
// output tied to the first layer's weight, groups with and without weight decay.
inline TrainingState StateForTest(training::v1::OptimizerKind kind, uint64_t seed,
                                  int64_t width = 4) {
  at::Generator generator = at::detail::createCPUGenerator(seed);
  const auto random = [&](std::vector<int64_t> sizes) { return at::randn(sizes, generator); };
  TrainingState state;
  state.model = {{"first.weight", random({width, 3})},
                 {"first.bias", random({width})},
                 {"second.weight", random({2, width})},
                 {"second.bias", random({2})},
                 {"mean", random({3})}};
  state.tied = {{"output.weight", "first.weight"}};
  OptimizerState& optimizer = state.optimizer;
  optimizer.kind = kind;
  optimizer.beta1 = 0.8;
  optimizer.beta2 = 0.95;
  optimizer.epsilon = 1e-7;
  const bool sgd = kind == training::v1::OPTIMIZER_KIND_SGD;
  optimizer.momentum = sgd ? 0.9 : 0;
  optimizer.nesterov = sgd;
  optimizer.groups = {{.learning_rate = 2e-3,
                       .scheduled_learning_rate = 1.5e-3,
                       .weight_decay = 0.1,
                       .parameters = {0, 2}},
                      {.learning_rate = 4e-3,
                       .scheduled_learning_rate = 3e-3,
                       .weight_decay = 0,
                       .parameters = {1, 3}}};
  for (size_t i = 0; i < 4; ++i) {
    const std::vector<int64_t> sizes = state.model[i].second.sizes().vec();
    auto& entry = optimizer.parameters.emplace_back();
    if (sgd) {
      entry = {{"momentum_buffer", random(sizes)}};
    } else {
      entry = {{"step", at::full({}, 7, at::kFloat)},
               {"exp_avg", random(sizes)},
               {"exp_avg_sq", random(sizes).square()}};
    }
    state.ema.emplace_back(state.model[i].first, random(sizes));
  }
  state.scaler = GradScalerState{.scale = 4096,
                                 .growth_factor = 2,
                                 .backoff_factor = 0.5,
                                 .growth_interval = 100,
                                 .growth_tracker = 17,
                                 .hysteresis_left = 2};
  state.rng_state = generator.get_state();
  state.device_rng_state = at::arange(16, at::kByte);
  state.priorities = random({9}).abs();
  state.position = {.progress = {},
                    .applied_steps = 7,
                    .sampler = {.epoch = 3, .batch = 2},
                    .seed = ~uint64_t{0} - seed};
  training::v1::Progress& progress = state.position.progress;
  progress.set_step(9);
  progress.set_samples(576);
  progress.set_skipped_steps(2);
  progress.set_overflow_steps(1);
  progress.set_reduced_precision_steps(8);
  progress.set_scale_backoffs(1);
  progress.set_seconds(1.25);
  progress.set_loss(0.375);
  progress.set_mode(training::v1::PRECISION_MODE_MIXED_FP16);
  state.policy = {
      .promotions = 1,
      .clean_steps = 5,
      .left = {training::v1::PRECISION_MODE_FP16, training::v1::PRECISION_MODE_MIXED_BF16}};
  state.evaluation.best_loss = 0.25;
  state.evaluation.best_step = 6;
  state.evaluation.without_improvement = 1;
  return state;
}

}  // namespace genesis
