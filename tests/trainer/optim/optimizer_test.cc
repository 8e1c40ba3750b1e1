#include "trainer/optim/optimizer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/torch.h>

#include <cmath>
#include <limits>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/algorithm/container.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "config/job/job_spec.h"
#include "trainer/optim/gradient_clipping.h"
#include "trainer/optim/master_weights.h"
#include "trainer/optim/parameter_groups.h"
#include "trainer/optim/schedule.h"
#include "trainer/optim/weight_average.h"
#include "trainer/precision/grad_scaler.h"

namespace genesis {
namespace {

using testing::ElementsAre;
using testing::SizeIs;
using training::v1::OptimizerSpec;

OptimizerSpec Spec(training::v1::OptimizerKind kind) {
  training::v1::JobSpec job;
  job.mutable_optimizer()->set_kind(kind);
  if (kind == training::v1::OPTIMIZER_KIND_SGD) job.mutable_optimizer()->set_momentum(0.9);
  job.mutable_optimizer()->set_learning_rate(1);  // Steps set the rate.
  return WithDefaults(job, LossScaleSettings()).optimizer();
}

const torch::Tensor kOne = torch::ones({});
const torch::Tensor kZero = torch::zeros({});

// An interface like torch::optim's: an optimizer of some tensors, with one gradient scale and one
// learning rate for all.
class Updates {
 public:
  Updates(std::vector<torch::Tensor> weights, const OptimizerSpec& spec, OptimizerShare share = {})
      : groups_(Groups(weights, spec)),
        optimizer_(std::move(weights), spec, groups_.optimizer, std::move(share)) {}

  // `rate` is the learning rate of all groups.
  void Step(const std::vector<torch::Tensor>& gradients, const Optimizer::RateFactor& rate,
            const torch::Tensor& grad_scale, const torch::Tensor& found_inf) {
    const std::vector<at::Tensor> scales(groups_.optimizer.size(), grad_scale);
    optimizer_.Step(gradients, rate, scales, found_inf);
  }
  OptimizerState state() const { return optimizer_.state(); }

 private:
  static ParameterGroups Groups(const std::vector<torch::Tensor>& weights,
                                const OptimizerSpec& spec) {
    training::v1::JobSpec job;
    *job.mutable_optimizer() = spec;
    std::vector<std::pair<std::string, at::Tensor>> named;
    for (const auto& weight : weights) named.emplace_back(std::to_string(named.size()), weight);
    return *GroupParameters(job, named);
  }

  const ParameterGroups groups_;
  Optimizer optimizer_;
};

class OptimizerKindTest : public testing::TestWithParam<training::v1::OptimizerKind> {};

TEST_P(OptimizerKindTest, SkipsAnOverflowWithoutATraceAndUnscales) {
  torch::Tensor weight = torch::ones({3});
  Updates optimizer({weight}, Spec(GetParam()));
  const auto infinite = torch::full({3}, std::numeric_limits<float>::infinity());
  optimizer.Step({infinite}, 0.1, kOne, kOne);
  EXPECT_TRUE(torch::equal(weight, torch::ones({3})));
  const OptimizerState untouched = optimizer.state();
  for (const auto& [name, tensor] : untouched.parameters[0]) {
    EXPECT_EQ(tensor.abs().sum().item<float>(), 0) << name;
  }
  torch::Tensor plain_weight = torch::ones({3});
  Updates plain({plain_weight}, Spec(GetParam()));
  optimizer.Step({torch::full({3}, 8.0f)}, 0.1, torch::full({}, 8.0f), kZero);
  plain.Step({torch::ones({3})}, 0.1, kOne, kZero);
  EXPECT_TRUE(torch::equal(weight, plain_weight));
  EXPECT_LT(weight[0].item<float>(), 1);
}

TEST_P(OptimizerKindTest, TakesALearningRateThatOnlyTheDeviceKnows) {
  torch::Tensor a = torch::ones({3});
  torch::Tensor b = torch::ones({3});
  Updates number({a}, Spec(GetParam()));
  Updates tensor({b}, Spec(GetParam()));
  number.Step({torch::ones({3})}, 0.25, kOne, kZero);
  tensor.Step({torch::ones({3})}, torch::full({}, 0.25f), kOne, kZero);
  EXPECT_TRUE(torch::equal(a, b));
}

// Like the optimizers of several processes in shared memory.
TEST_P(OptimizerKindTest, PartsOfAnUpdateAreTheWholeToTheBit) {
  const auto make = [] {
    torch::manual_seed(4);
    std::vector<torch::Tensor> weights;
    for (const int64_t size : {1, 63, 64, 65, 1000, 40001}) weights.push_back(torch::randn({size}));
    weights.push_back(torch::randn({9, 5, 3, 3}).contiguous(at::MemoryFormat::ChannelsLast));
    return weights;
  };
  for (const int parts : {2, 3, 7}) {
    const std::vector<torch::Tensor> weights = make();
    const std::vector<torch::Tensor> expected = make();
    Updates whole(expected, Spec(GetParam()));
    // Memory of the state, which the first optimizer creates and all share.
    std::vector<torch::Tensor> memory;
    std::vector<std::unique_ptr<Updates>> updates;
    for (int part = 0; part < parts; ++part) {
      size_t next = 0;
      const auto zeros = [&](const at::Tensor& master) {
        if (part == 0) memory.push_back(torch::zeros_like(master));
        return memory[next++];
      };
      updates.push_back(std::make_unique<Updates>(
          weights, Spec(GetParam()),
          OptimizerShare{.owned = {}, .part = part, .parts = parts, .zeros = zeros}));
    }
    for (int step = 0; step < 3; ++step) {
      std::vector<torch::Tensor> gradients;
      for (const torch::Tensor& weight : weights) gradients.push_back(torch::randn_like(weight));
      for (const auto& part : updates) {
        std::vector<torch::Tensor> own;
        for (const torch::Tensor& gradient : gradients) own.push_back(gradient.clone());
        part->Step(own, 0.1, torch::full({}, 4.0F), step == 1 ? kOne : kZero);
      }
      whole.Step(gradients, 0.1, torch::full({}, 4.0F), step == 1 ? kOne : kZero);
    }
    const OptimizerState one = whole.state();
    for (const auto& part : updates) {
      const OptimizerState state = part->state();
      for (size_t i = 0; i < weights.size(); ++i) {
        EXPECT_TRUE(torch::equal(weights[i], expected[i])) << parts << ", weight " << i;
        ASSERT_EQ(state.parameters[i].size(), one.parameters[i].size());
        for (size_t j = 0; j < one.parameters[i].size(); ++j) {
          EXPECT_TRUE(torch::equal(state.parameters[i][j].second, one.parameters[i][j].second))
              << parts << ", state " << i << " " << one.parameters[i][j].first;
        }
      }
    }
  }
}

// Updates traverse memory linearly, so all four tensors of a parameter must use the same order.
TEST_P(OptimizerKindTest, TakesParametersAndGradientsOfAnyMemoryOrder) {
  const auto train = [&](at::MemoryFormat of_weight, at::MemoryFormat of_gradient) {
    torch::manual_seed(4);
    torch::Tensor weight = torch::randn({4, 3, 2, 2}).contiguous(of_weight);
    Updates optimizer({weight}, Spec(GetParam()));
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
  Updates optimizer({both, late}, spec);
  Updates alone({fresh}, spec);
  optimizer.Step({torch::ones({2, 2}), {}}, 0.1, kOne, kZero);
  EXPECT_TRUE(torch::equal(late, torch::full({3}, 2.0f)));
  EXPECT_LT(both[0][0].item<float>(), 1);
  const OptimizerState state = optimizer.state();
  for (const auto& [name, tensor] : state.parameters[1]) EXPECT_FALSE(tensor.any().item<bool>());
  // The late one's first update is its step 1. An update without gradients is not counted.
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
  Updates optimizer({bias, matrix}, spec);
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
    EXPECT_DOUBLE_EQ(schedule.LearningRate(0, 0), 0.25);
    EXPECT_DOUBLE_EQ(schedule.LearningRate(3, 0), 1);
    EXPECT_DOUBLE_EQ(schedule.LearningRate(4, 0), 1);
    EXPECT_DOUBLE_EQ(schedule.LearningRate(9, 0), 0.6);  // Halfway.
    EXPECT_DOUBLE_EQ(schedule.LearningRate(14, 0), 0.2);
    EXPECT_DOUBLE_EQ(schedule.LearningRate(99, 0), 0.2);
  }
}

TEST(ScheduleTest, FallsByAFactorAtEachPlateau) {
  OptimizerSpec spec = Spec(training::v1::OPTIMIZER_KIND_ADAMW);
  training::v1::ScheduleSpec& plateau = *spec.mutable_schedule();
  plateau.set_kind(training::v1::SCHEDULE_KIND_PLATEAU);
  plateau.set_plateau_factor(0.5);
  plateau.set_final_fraction(0.2);
  plateau.set_warmup_steps(4);
  const Schedule schedule(spec, 10);
  EXPECT_FALSE(schedule.constant());
  EXPECT_DOUBLE_EQ(schedule.Factor(0, 0), 0.25);
  EXPECT_DOUBLE_EQ(schedule.Factor(9, 0), 1);
  EXPECT_DOUBLE_EQ(schedule.Factor(1000, 2), 0.25);
  EXPECT_DOUBLE_EQ(schedule.Factor(1000, 3), 0.2);
}

TEST(ScheduleTest, GoesInStraightLinesBetweenThePointsOfATable) {
  OptimizerSpec spec = Spec(training::v1::OPTIMIZER_KIND_ADAMW);
  spec.mutable_schedule()->set_kind(training::v1::SCHEDULE_KIND_TABLE);
  for (const auto& [step, factor] :
       std::vector<std::pair<int64_t, double>>{{2, 0.5}, {6, 2.5}, {16, 0}}) {
    auto& point = *spec.mutable_schedule()->add_points();
    point.set_step(step);
    point.set_factor(factor);
  }
  const Schedule schedule(spec, 20);
  EXPECT_FALSE(schedule.constant());
  const std::vector<std::pair<int64_t, double>> wanted = {
      {0, 0.5}, {2, 0.5}, {3, 1}, {6, 2.5}, {7, 2.25}, {15, 0.25}, {16, 0}, {1000, 0}};
  for (const auto& [step, factor] : wanted)
    EXPECT_DOUBLE_EQ(schedule.Factor(step, 0), factor) << step;
}

// Tests GroupParameters with parameters whose dimensions follow from their names.
class ParameterGroupsTest : public testing::Test {
 protected:
  ParameterGroupsTest() {
    job_.mutable_training()->set_max_grad_norm(2);
    job_.mutable_optimizer()->set_learning_rate(0.25);
    job_.mutable_optimizer()->set_weight_decay(0.125);
    for (const char* name : {"encoder.0.weight", "encoder.0.bias", "head.weight", "head.bias"}) {
      parameters_.emplace_back(
          name, torch::ones(std::string_view(name).ends_with("bias") ? at::IntArrayRef{2}
                                                                     : at::IntArrayRef{2, 2}));
    }
  }

  training::v1::ParameterGroupSpec& Add(const std::vector<std::string>& patterns) {
    auto& group = *job_.mutable_optimizer()->add_parameter_groups();
    for (const std::string& pattern : patterns) group.add_parameters(pattern);
    return group;
  }
  // Returns "rate decay: numbers" for each group.
  std::vector<std::string> Divided() const {
    const absl::StatusOr<ParameterGroups> groups = GroupParameters(job_, parameters_);
    if (!groups.ok()) return {std::string(groups.status().message())};
    std::vector<std::string> texts;
    for (const OptimizerGroup& group : groups->optimizer) {
      texts.push_back(absl::StrCat(group.learning_rate, " ", group.weight_decay, ": ",
                                   absl::StrJoin(group.parameters, ",")));
    }
    return texts;
  }

  training::v1::JobSpec job_;
  std::vector<std::pair<std::string, at::Tensor>> parameters_;
};

TEST_F(ParameterGroupsTest, AParameterBelongsToTheFirstThatMatches) {
  EXPECT_THAT(Divided(), ElementsAre("0.25 0.125: 0,1,2,3"));
  Add({"head.*", "no such"}).set_learning_rate(0.5);
  Add({"*.bias"}).set_weight_decay(-1);
  EXPECT_THAT(Divided(), ElementsAre("0.25 0.125: 0", "0.5 0.125: 2,3", "0.25 0: 1"));
  job_.mutable_optimizer()->set_no_decay_on_norms_and_biases(true);
  EXPECT_THAT(Divided(), ElementsAre("0.25 0.125: 0", "0.5 0.125: 2", "0.5 0: 3", "0.25 0: 1"));
  job_.mutable_optimizer()->mutable_parameter_groups(0)->set_weight_decay(0.5);
  EXPECT_THAT(Divided(), ElementsAre("0.25 0.125: 0", "0.5 0.5: 2,3", "0.25 0: 1"));
  Add({"*"});
  EXPECT_THAT(Divided(), ElementsAre("0.5 0.5: 2,3", "0.25 0: 1", "0.25 0.125: 0"));
}

TEST_F(ParameterGroupsTest, PatternsAreAsAShellsAndCheap) {
  const auto matches = [&](const std::string& pattern) {
    job_.mutable_optimizer()->clear_parameter_groups();
    Add({pattern}).set_learning_rate(4);
    const std::vector<std::string> divided = Divided();
    const auto own =
        absl::c_find_if(divided, [](const std::string& group) { return group.starts_with("4 "); });
    return own == divided.end() ? "" : own->substr(own->find(": ") + 2);
  };
  EXPECT_EQ(matches("head.bias"), "3");
  EXPECT_EQ(matches("head"), "");
  EXPECT_EQ(matches("*d*"), "0,1,2,3");
  EXPECT_EQ(matches("*.?.*"), "0,1");
  EXPECT_EQ(matches("*.weight*"), "0,2");
  EXPECT_EQ(matches("????.bias"), "3");
  EXPECT_EQ(matches("[h]ead.bias"), "");
  EXPECT_EQ(matches("*n*e*i*h*"), "0");
  for (const char* name : {"w*", "w1", "w?", "w\\x", "w\\*"}) {
    parameters_.emplace_back(name, torch::ones({2}));
  }
  EXPECT_EQ(matches("w*"), "4,5,6,7,8");
  EXPECT_EQ(matches("w?"), "4,5,6");
  EXPECT_EQ(matches("w\\*"), "4");
  EXPECT_EQ(matches("w\\?"), "6");
  EXPECT_EQ(matches("w\\x"), "7");
  EXPECT_EQ(matches("w\\\\*"), "7,8");
  EXPECT_EQ(matches("w\\\\\\*"), "8");
  EXPECT_EQ(matches("*\\*"), "4,8");
  EXPECT_EQ(matches("w1\\"), "");
  parameters_.emplace_back(std::string(4000, 'a'), torch::ones({2}));
  std::string costly;
  for (int i = 0; i < 1000; ++i) costly += "*a";
  EXPECT_EQ(matches(costly + "*b"), "");
}

TEST_F(ParameterGroupsTest, AGroupWithoutAParameterIsAMistake) {
  Add({"head.*"});
  Add({"head.bias", "decoder.\n*"});
  EXPECT_THAT(Divided(),
              ElementsAre("optimizer.parameter_groups[1].parameters: \"head.bias\", "
                          "\"decoder.\\n*\" match no parameter that is in no group before; those "
                          "that are trained: \"encoder.0.weight\", \"encoder.0.bias\", "
                          "\"head.weight\", \"head.bias\""));
}

TEST_F(ParameterGroupsTest, AreClippedByTheirOwnNorm) {
  job_.mutable_optimizer()->set_no_decay_on_norms_and_biases(true);
  Add({"head.*"}).set_max_grad_norm(1);
  Add({"encoder.0.bias"}).set_max_grad_norm(-1);
  const ParameterGroups groups = *GroupParameters(job_, parameters_);
  ASSERT_THAT(groups.optimizer, SizeIs(4)) << "encoder.0.weight; head's two; encoder.0.bias";
  const GradientClipping clipping(groups, at::kCPU);
  // The gradients are scaled by 8; their norms are 4, 16, 3 and 4.
  const torch::Tensor scale = torch::full({}, 8.0f);
  const torch::Tensor norms = torch::tensor({4.0f, 16.0f, 3.0f, 4.0f}) * scale;
  std::vector<float> divisors;
  for (const at::Tensor& each : clipping.Divisors(norms, torch::full({}, 99.0f), scale)) {
    divisors.push_back(each.item<float>());
  }
  EXPECT_THAT(divisors, ElementsAre(testing::FloatNear(16, 1e-4), testing::FloatNear(40, 1e-4),
                                    testing::FloatNear(40, 1e-4), 8));
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
  // Adding 2^-12 to 1 is lost in BF16, but kept in the master weight.
  for (int i = 0; i < 2; ++i) {
    weights.masters()[0].add_(std::ldexp(1.0, -12));
    weights.Publish();
    EXPECT_EQ(weight.item<float>(), 1);
  }
  weights.SetFormat(at::kFloat);
  EXPECT_EQ(weight.item<float>(), 1 + std::ldexp(1.0f, -11));
  // In FP32, weight and master are the same tensor again.
  weights.masters()[0].fill_(3);
  EXPECT_EQ(weight.item<float>(), 3);
}

TEST(MasterWeightsTest, SumsMicroBatchesInFp32) {
  torch::Tensor weight = torch::full({1}, 1.0f, torch::requires_grad());
  MasterWeights weights({weight});
  weights.SetFormat(at::kBFloat16);
  weights.BeginStep();
  for (const double factor : {256.0, 1.0, 1.0, 1.0}) {  // 257 is not representable in BF16.
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

// Returns the scale after each step, where `overflows` has 1 for an overflow.
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
  // A clean step resets the count: only the second overflow in a row counts, and each after it.
  EXPECT_THAT(Scales(options, {1, 0, 1, 1, 1, 0, 1}),
              testing::ElementsAre(64, 64, 64, 32, 16, 16, 16));
}

}  // namespace
}  // namespace genesis
