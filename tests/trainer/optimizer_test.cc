#include "trainer/optim/optimizer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/torch.h>

#include <cmath>
#include <limits>

#include "config/job/job_spec.h"
#include "trainer/optim/master_weights.h"
#include "trainer/optim/schedule.h"
#include "trainer/optim/weight_average.h"
#include "trainer/precision/grad_scaler.h"

namespace genesis {
namespace {

using training::v1::OptimizerSpec;

OptimizerSpec Spec(training::v1::OptimizerKind kind) {
  training::v1::JobSpec job;
  job.mutable_optimizer()->set_kind(kind);
  if (kind == training::v1::OPTIMIZER_KIND_SGD) job.mutable_optimizer()->set_momentum(0.9);
  return WithDefaults(job, LossScaleSettings()).optimizer();
}

const torch::Tensor kOne = torch::ones({});
const torch::Tensor kZero = torch::zeros({});

class OptimizerKindTest : public testing::TestWithParam<training::v1::OptimizerKind> {};

TEST_P(OptimizerKindTest, SkipsAnOverflowWithoutATraceAndUnscales) {
  torch::Tensor weight = torch::ones({3});
  Optimizer optimizer({weight}, Spec(GetParam()));
  const auto infinite = torch::full({3}, std::numeric_limits<float>::infinity());
  optimizer.Step({infinite}, 0.1, kOne, kOne);
  EXPECT_TRUE(torch::equal(weight, torch::ones({3})));
  const OptimizerState untouched = optimizer.state();
  for (const auto& [name, tensor] : untouched.parameters[0]) {
    EXPECT_EQ(tensor.abs().sum().item<float>(), 0) << name;
  }
  torch::Tensor plain_weight = torch::ones({3});
  Optimizer plain({plain_weight}, Spec(GetParam()));
  optimizer.Step({torch::full({3}, 8.0f)}, 0.1, torch::full({}, 8.0f), kZero);
  plain.Step({torch::ones({3})}, 0.1, kOne, kZero);
  EXPECT_TRUE(torch::equal(weight, plain_weight));
  EXPECT_LT(weight[0].item<float>(), 1);
}

TEST_P(OptimizerKindTest, TakesALearningRateThatOnlyTheDeviceKnows) {
  torch::Tensor a = torch::ones({3});
  torch::Tensor b = torch::ones({3});
  Optimizer number({a}, Spec(GetParam()));
  Optimizer tensor({b}, Spec(GetParam()));
  number.Step({torch::ones({3})}, 0.25, kOne, kZero);
  tensor.Step({torch::ones({3})}, torch::full({}, 0.25f), kOne, kZero);
  EXPECT_TRUE(torch::equal(a, b));
}

// Their memory is walked from end to end, so all four of a parameter have to lie in one order.
TEST_P(OptimizerKindTest, TakesParametersAndGradientsOfAnyMemoryOrder) {
  const auto train = [&](at::MemoryFormat of_weight, at::MemoryFormat of_gradient) {
    torch::manual_seed(4);
    torch::Tensor weight = torch::randn({4, 3, 2, 2}).contiguous(of_weight);
    Optimizer optimizer({weight}, Spec(GetParam()));
    for (int step = 0; step < 3; ++step) {
      optimizer.Step({torch::randn({4, 3, 2, 2}).contiguous(of_gradient)}, 0.1, kOne, kZero);
    }
    EXPECT_TRUE(weight.is_contiguous(of_weight));
    const OptimizerState state = optimizer.state();
    for (const auto& [name, tensor] : state.parameters[0]) {
      if (name == "step") continue;
      EXPECT_EQ(tensor.sizes(), weight.sizes()) << name;
    }
    return weight;
  };
  constexpr auto kRows = at::MemoryFormat::Contiguous;
  constexpr auto kChannelsLast = at::MemoryFormat::ChannelsLast;
  const torch::Tensor expected = train(kRows, kRows);
  EXPECT_TRUE(torch::equal(train(kChannelsLast, kChannelsLast), expected));
  EXPECT_TRUE(torch::equal(train(kRows, kChannelsLast), expected));
  EXPECT_TRUE(torch::equal(train(kChannelsLast, kRows), expected));
}

TEST_P(OptimizerKindTest, LeavesAParameterWithoutAGradientAsItIs) {
  OptimizerSpec spec = Spec(GetParam());
  spec.set_weight_decay(0.5);
  torch::Tensor both = torch::ones({2, 2});
  torch::Tensor late = torch::full({3}, 2.0f);
  torch::Tensor fresh = torch::full({3}, 2.0f);
  Optimizer optimizer({both, late}, spec);
  Optimizer alone({fresh}, spec);
  optimizer.Step({torch::ones({2, 2}), {}}, 0.1, kOne, kZero);
  EXPECT_TRUE(torch::equal(late, torch::full({3}, 2.0f)));
  EXPECT_LT(both[0][0].item<float>(), 1);
  const OptimizerState state = optimizer.state();
  for (const auto& [name, tensor] : state.parameters[1]) EXPECT_FALSE(tensor.any().item<bool>());
  // Its first step is a first step, and nothing at all is a step of none.
  optimizer.Step({torch::ones({2, 2}), torch::ones({3})}, 0.1, kOne, kZero);
  alone.Step({torch::ones({3})}, 0.1, kOne, kZero);
  optimizer.Step({{}, {}}, 0.1, kOne, kZero);
  EXPECT_TRUE(torch::equal(late, fresh));
}

INSTANTIATE_TEST_SUITE_P(Kinds, OptimizerKindTest,
                         testing::Values(training::v1::OPTIMIZER_KIND_ADAMW,
                                         training::v1::OPTIMIZER_KIND_ADAM,
                                         training::v1::OPTIMIZER_KIND_SGD));

TEST(OptimizerTest, KeepsDecayOffNormsAndBiases) {
  OptimizerSpec spec = Spec(training::v1::OPTIMIZER_KIND_ADAMW);
  spec.set_weight_decay(0.5);
  spec.set_no_decay_on_norms_and_biases(true);
  torch::Tensor matrix = torch::ones({2, 2});
  torch::Tensor bias = torch::ones({2});
  Optimizer optimizer({bias, matrix}, spec);
  optimizer.Step({torch::zeros({2}), torch::zeros({2, 2})}, 0.1, kOne, kZero);
  EXPECT_FLOAT_EQ(matrix[0][0].item<float>(), 0.95f);
  EXPECT_EQ(bias[0].item<float>(), 1);
  const OptimizerState state = optimizer.state();
  ASSERT_EQ(state.groups.size(), 2u);
  EXPECT_EQ(state.groups[0].weight_decay, 0.5);
  EXPECT_EQ(state.groups[0].parameters, std::vector<int64_t>{1});
  EXPECT_EQ(state.groups[1].weight_decay, 0);
}

TEST(ScheduleTest, WarmsUpAndDecaysToItsEnd) {
  OptimizerSpec spec = Spec(training::v1::OPTIMIZER_KIND_ADAMW);
  spec.set_learning_rate(1);
  EXPECT_TRUE(Schedule(spec, 10).constant());
  spec.mutable_schedule()->set_warmup_steps(4);
  spec.mutable_schedule()->set_final_fraction(0.2);
  for (const auto kind : {training::v1::SCHEDULE_KIND_LINEAR, training::v1::SCHEDULE_KIND_COSINE}) {
    spec.mutable_schedule()->set_kind(kind);
    const Schedule schedule(spec, 15);
    EXPECT_DOUBLE_EQ(schedule.LearningRate(0), 0.25);
    EXPECT_DOUBLE_EQ(schedule.LearningRate(3), 1);
    EXPECT_DOUBLE_EQ(schedule.LearningRate(4), 1);
    EXPECT_DOUBLE_EQ(schedule.LearningRate(9), 0.6);  // Half way.
    EXPECT_DOUBLE_EQ(schedule.LearningRate(14), 0.2);
    EXPECT_DOUBLE_EQ(schedule.LearningRate(99), 0.2);
  }
}

TEST(WeightAverageTest, FollowsTheWeightsButNotThroughSkippedSteps) {
  const torch::Tensor weight = torch::zeros({2});
  WeightAverage average({weight}, 0.75);
  weight.fill_(8);
  average.Update(kOne);
  EXPECT_EQ(average.average()[0][0].item<float>(), 0);
  average.Update(kZero);
  EXPECT_EQ(average.average()[0][0].item<float>(), 2);
}

TEST(MasterWeightsTest, KeepWhatReducedPrecisionRounds) {
  torch::Tensor weight = torch::full({1}, 1.0f, torch::requires_grad());
  MasterWeights weights({weight});
  weights.SetFormat(at::kBFloat16);
  EXPECT_EQ(weight.scalar_type(), at::kBFloat16);
  // 1 + 2^-12 is lost in BF16, and kept by the master.
  for (int i = 0; i < 2; ++i) {
    weights.masters()[0].add_(std::ldexp(1.0, -12));
    weights.Publish();
    EXPECT_EQ(weight.item<float>(), 1);
  }
  weights.SetFormat(at::kFloat);
  EXPECT_EQ(weight.item<float>(), 1 + std::ldexp(1.0f, -11));
  // In FP32 the two are one again.
  weights.masters()[0].fill_(3);
  EXPECT_EQ(weight.item<float>(), 3);
}

TEST(MasterWeightsTest, SumsMicroBatchesInFp32) {
  torch::Tensor weight = torch::full({1}, 1.0f, torch::requires_grad());
  MasterWeights weights({weight});
  weights.SetFormat(at::kBFloat16);
  weights.BeginStep();
  for (const double factor : {256.0, 1.0, 1.0, 1.0}) {  // 257 is no BF16 number.
    (weight * factor).sum().backward();
    weights.Accumulate();
  }
  EXPECT_EQ(weights.gradients()[0].scalar_type(), at::kFloat);
  EXPECT_EQ(weights.gradients()[0].item<float>(), 259);
}

TEST(MasterWeightsTest, TellWhichGradientsArrivedInAnyMicroBatch) {
  for (const auto format : {at::kFloat, at::kBFloat16}) {
    torch::Tensor used = torch::ones({2}, torch::requires_grad());
    torch::Tensor once = torch::ones({2}, torch::requires_grad());
    torch::Tensor never = torch::ones({2}, torch::requires_grad());
    MasterWeights weights({used, once, never});
    weights.SetFormat(format);
    weights.BeginStep();
    (used + once).sum().backward();
    weights.Accumulate();
    used.sum().backward();
    weights.Accumulate();
    const std::vector<at::Tensor> arrived = weights.ArrivedGradients();
    EXPECT_EQ(arrived[0][0].item<float>(), 2);
    EXPECT_EQ(arrived[1][0].item<float>(), 1);
    EXPECT_FALSE(arrived[2].defined());
    EXPECT_FALSE(weights.gradients()[2].any().item<bool>());
    weights.BeginStep();
    used.sum().backward();
    weights.Accumulate();
    EXPECT_FALSE(weights.ArrivedGradients()[1].defined());
  }
}

GradScalerOptions Every3(double initial_scale) {
  GradScalerOptions options;
  options.initial_scale = initial_scale;
  options.growth_interval = 3;
  return options;
}

// The scale after each step of a script of overflows.
std::vector<double> Scales(const GradScalerOptions& options, const std::vector<int>& overflows) {
  GradScaler scaler(options, at::kCPU);
  std::vector<double> scales;
  for (const int overflow : overflows) {
    scaler.Update(torch::full({}, static_cast<float>(overflow)));
    scales.push_back(scaler.scale().item<float>());
  }
  return scales;
}

TEST(GradScalerTest, TakesUpAStateWhereItWasLeft) {
  GradScaler scaler(Every3(8), at::kCPU);
  scaler.Update(kZero);
  scaler.Update(kZero);
  GradScaler other(Every3(1), at::kCPU);
  other.LoadState(scaler.state());
  EXPECT_EQ(other.state().growth_tracker, 2);
  other.Update(kZero);
  EXPECT_EQ(other.state().scale, 16);
}

TEST(GradScalerTest, StaysWithinItsBounds) {
  GradScalerOptions options = Every3(4);
  options.min_scale = 2;
  options.max_scale = 5;
  EXPECT_THAT(Scales(options, {1, 1, 1, 0, 0, 0, 0, 0, 0}),
              testing::ElementsAre(2, 2, 2, 2, 2, 4, 4, 4, 5));
}

TEST(GradScalerTest, WaitsForSeveralOverflowsWithHysteresis) {
  GradScalerOptions options = Every3(64);
  options.hysteresis = 2;
  // Refilled by a clean step: only the second of two in a row counts, and each after it.
  EXPECT_THAT(Scales(options, {1, 0, 1, 1, 1, 0, 1}),
              testing::ElementsAre(64, 64, 64, 32, 16, 16, 16));
  // Refilled by a growth: clean steps do not forgive.
  options.refill_on_growth = true;
  EXPECT_THAT(Scales(options, {1, 0, 1, 0, 0, 0, 1}),
              testing::ElementsAre(64, 64, 32, 32, 32, 64, 64));
}

TEST(GradScalerTest, ToleratesAShareOfOverflows) {
  GradScalerOptions options = Every3(64);
  options.growth_interval = 100;
  options.overflow_tolerance = 0.3;
  // One of four is 25 %; two of five are 40 %.
  EXPECT_THAT(Scales(options, {0, 0, 0, 1, 1, 0, 0, 0, 1}),
              testing::ElementsAre(64, 64, 64, 64, 32, 32, 32, 32, 32));
}

}  // namespace
}  // namespace genesis
