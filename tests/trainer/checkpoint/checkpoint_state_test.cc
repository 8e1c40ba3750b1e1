#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>
#include <map>

#include "tests/temp_dir.h"
#include "tests/trainer/state_for_test.h"
#include "trainer/checkpoint/checkpoint_reader.h"
#include "trainer/checkpoint/write_checkpoint.h"

namespace genesis {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using Tensors = std::vector<std::pair<std::string, at::Tensor>>;

bool Same(const at::Tensor& a, const at::Tensor& b) {
  if (!a.defined() || !b.defined()) return a.defined() == b.defined();
  return a.dtype() == b.dtype() && a.sizes() == b.sizes() && at::equal(a, b);
}

void ExpectSame(const Tensors& a, const Tensors& b) {
  ASSERT_EQ(a.size(), b.size());
  for (size_t i = 0; i < a.size(); ++i) {
    EXPECT_EQ(a[i].first, b[i].first);
    EXPECT_TRUE(Same(a[i].second, b[i].second)) << a[i].first;
  }
}

void ExpectSame(const OptimizerState& a, const OptimizerState& b) {
  EXPECT_EQ(a.kind, b.kind);
  if (a.kind == training::v1::OPTIMIZER_KIND_SGD) {
    EXPECT_EQ(a.momentum, b.momentum);
    EXPECT_EQ(a.nesterov, b.nesterov);
  } else {
    EXPECT_EQ(a.beta1, b.beta1);
    EXPECT_EQ(a.beta2, b.beta2);
    EXPECT_EQ(a.epsilon, b.epsilon);
  }
  ASSERT_EQ(a.groups.size(), b.groups.size());
  for (size_t i = 0; i < a.groups.size(); ++i) {
    EXPECT_EQ(a.groups[i].learning_rate, b.groups[i].learning_rate);
    EXPECT_EQ(a.groups[i].scheduled_learning_rate, b.groups[i].scheduled_learning_rate);
    EXPECT_EQ(a.groups[i].weight_decay, b.groups[i].weight_decay);
    EXPECT_EQ(a.groups[i].parameters, b.groups[i].parameters);
  }
  ASSERT_EQ(a.parameters.size(), b.parameters.size());
  for (size_t i = 0; i < a.parameters.size(); ++i) ExpectSame(a.parameters[i], b.parameters[i]);
}

void ExpectSame(const RunPosition& a, const RunPosition& b) {
  EXPECT_EQ(a.progress.DebugString(), b.progress.DebugString());
  EXPECT_EQ(a.applied_steps, b.applied_steps);
  EXPECT_EQ(a.sampler.epoch, b.sampler.epoch);
  EXPECT_EQ(a.sampler.batch, b.sampler.batch);
  EXPECT_EQ(a.seed, b.seed);
}

void ExpectSame(const TrainingState& a, const TrainingState& b) {
  ExpectSame(a.model, b.model);
  EXPECT_EQ(a.tied, b.tied);
  ExpectSame(a.optimizer, b.optimizer);
  ExpectSame(a.ema, b.ema);
  ASSERT_EQ(a.scaler.has_value(), b.scaler.has_value());
  if (a.scaler) {
    EXPECT_EQ(a.scaler->scale, b.scaler->scale);
    EXPECT_EQ(a.scaler->growth_factor, b.scaler->growth_factor);
    EXPECT_EQ(a.scaler->backoff_factor, b.scaler->backoff_factor);
    EXPECT_EQ(a.scaler->growth_interval, b.scaler->growth_interval);
    EXPECT_EQ(a.scaler->growth_tracker, b.scaler->growth_tracker);
    EXPECT_EQ(a.scaler->hysteresis_left, b.scaler->hysteresis_left);
  }
  EXPECT_TRUE(Same(a.rng_state, b.rng_state));
  EXPECT_TRUE(Same(a.device_rng_state, b.device_rng_state));
  EXPECT_TRUE(Same(a.priorities, b.priorities));
  ExpectSame(a.position, b.position);
  EXPECT_EQ(a.policy.promotions, b.policy.promotions);
  EXPECT_EQ(a.policy.clean_steps, b.policy.clean_steps);
  EXPECT_EQ(a.policy.left, b.policy.left);
  EXPECT_EQ(a.evaluation.best_loss, b.evaluation.best_loss);
  EXPECT_EQ(a.evaluation.best_step, b.evaluation.best_step);
  EXPECT_EQ(a.evaluation.without_improvement, b.evaluation.without_improvement);
}

class CheckpointStateTest : public testing::Test {
 protected:
  void ExpectComesBack(const TrainingState& state) {
    const absl::StatusOr<int64_t> size = WriteCheckpoint(state, path_);
    ASSERT_TRUE(size.ok()) << size.status();
    EXPECT_EQ(static_cast<uintmax_t>(*size), std::filesystem::file_size(path_));
    const absl::StatusOr<TrainingState> read = ReadCheckpoint(path_);
    ASSERT_TRUE(read.ok()) << read.status();
    ExpectSame(state, *read);
  }

  const TempDir temp_;
  const std::string path_ = temp_.path() + "/x.pt";
};

TEST_F(CheckpointStateTest, EveryFieldComesBackForEachOptimizer) {
  ExpectComesBack(StateForTest(training::v1::OPTIMIZER_KIND_ADAMW, 1));
  ExpectComesBack(StateForTest(training::v1::OPTIMIZER_KIND_ADAM, 2));
  ExpectComesBack(StateForTest(training::v1::OPTIMIZER_KIND_SGD, 3));
}

TEST_F(CheckpointStateTest, BuffersOfAnyTypeComeBack) {
  TrainingState state = StateForTest(training::v1::OPTIMIZER_KIND_ADAMW, 5);
  state.model.emplace_back("norm.num_batches_tracked", at::full({}, 7, at::kLong));
  state.model.emplace_back("mask", at::ones({2, 3}, at::kBool));
  state.model.emplace_back("wide", at::full({2}, 0.1, at::kDouble));
  ExpectComesBack(state);
}

TEST_F(CheckpointStateTest, ParametersAreFloat32) {
  TrainingState state = StateForTest(training::v1::OPTIMIZER_KIND_ADAMW, 6);
  state.model.front().second = state.model.front().second.to(at::kLong);
  ASSERT_TRUE(WriteCheckpoint(state, path_).ok());
  EXPECT_THAT(
      ReadCheckpoint(path_).status().message(),
      AllOf(HasSubstr("entry model_state_dict." + state.model.front().first + " is a int64"),
            HasSubstr("; accepted: float32")));
}

TEST_F(CheckpointStateTest, WhatIsNotThereStaysAway) {
  TrainingState state = StateForTest(training::v1::OPTIMIZER_KIND_SGD, 4);
  state.tied.clear();
  state.ema.clear();
  state.scaler.reset();
  state.device_rng_state = at::Tensor();
  state.priorities = at::Tensor();
  state.policy = {};
  state.evaluation = {};
  state.optimizer.momentum = 0;
  state.optimizer.nesterov = false;
  for (auto& entry : state.optimizer.parameters) entry.clear();
  ExpectComesBack(state);
}

}  // namespace
}  // namespace genesis
