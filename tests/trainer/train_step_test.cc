#include "trainer/run/train_step.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <fstream>
#include <limits>
#include <vector>

#include "tests/trainer/job_for_test.h"
#include "trainer/checkpoint/checkpoint_reader.h"
#include "trainer/checkpoint/checkpoint_writer.h"
#include "trainer/precision/autocast_guard.h"
#include "trainer/run/trainee.h"

namespace genesis {
namespace {

using testing::HasSubstr;

TEST(AutocastGuardTest, RunsLayersInItsFormatAndPutsBackWhatWas) {
  const torch::Tensor a = torch::ones({4, 4});
  {
    const AutocastGuard bf16(at::kCPU, at::kBFloat16);
    EXPECT_EQ(torch::mm(a, a).scalar_type(), at::kBFloat16);
    {
      const AutocastGuard half(at::kCPU, at::kHalf);
      EXPECT_EQ(torch::mm(a, a).scalar_type(), at::kHalf);
    }
    EXPECT_EQ(torch::mm(a, a).scalar_type(), at::kBFloat16);
  }
  EXPECT_EQ(torch::mm(a, a).scalar_type(), at::kFloat);
  const AutocastGuard none(at::kCPU, std::nullopt);
  EXPECT_EQ(torch::mm(a, a).scalar_type(), at::kFloat);
}

TEST(FusedAdamWTest, SkipsAnOverflowWithoutATrace) {
  torch::Tensor weight = torch::ones({3}, torch::requires_grad());
  FusedAdamW optimizer({weight}, {});
  const torch::Tensor one = torch::ones({});
  weight.mutable_grad() = torch::full({3}, std::numeric_limits<float>::infinity());
  optimizer.Step(one, one);
  EXPECT_TRUE(torch::equal(weight.detach(), torch::ones({3})));
  EXPECT_EQ(optimizer.state()[0].step.item<float>(), 0);
  weight.mutable_grad() = torch::full({3}, 8.0f);
  optimizer.Step(torch::full({}, 8.0f), torch::zeros({}));
  EXPECT_EQ(optimizer.state()[0].step.item<float>(), 1);
  EXPECT_FLOAT_EQ(optimizer.state()[0].exp_avg[0].item<float>(), 0.1f);
}

GradScalerOptions Every3(double initial_scale) {
  GradScalerOptions options;
  options.initial_scale = initial_scale;
  options.growth_interval = 3;
  return options;
}

TEST(GradScalerTest, TakesUpAStateWhereItWasLeft) {
  GradScaler scaler(Every3(8), at::kCPU);
  scaler.Update(torch::zeros({}));
  scaler.Update(torch::zeros({}));
  GradScaler other(Every3(1), at::kCPU);
  other.LoadState(scaler.state());
  EXPECT_EQ(other.state().growth_tracker, 2);
  other.Update(torch::zeros({}));
  EXPECT_EQ(other.state().scale, 16);
}

class TraineeTest : public testing::Test {
 protected:
  TraineeTest() {
    start_ = TinyJob(folder_);
    dataset_ = *LoadTrajectories(start_.spec().dataset().trajectories());
  }

  TempDir folder_;
  training::v1::StartJob start_;
  TrajectoryDataset dataset_;
};

TEST_F(TraineeTest, ReadsFiguresOneStepLate) {
  Trainee at_once(start_, dataset_);
  std::vector<double> wanted;
  for (int i = 0; i < 3; ++i) {
    at_once.step().Run();
    wanted.push_back(at_once.step().Read().loss);
  }
  Trainee late(start_, dataset_);
  std::vector<double> losses;
  late.step().Run();
  late.step().Run();
  losses.push_back(late.step().Read().loss);
  late.step().Run();
  EXPECT_EQ(late.step().unread(), 2);
  losses.push_back(late.step().Read().loss);
  losses.push_back(late.step().Read().loss);
  EXPECT_EQ(late.step().unread(), 0);
  EXPECT_EQ(losses, wanted);
}

TEST_F(TraineeTest, WritesACheckpointThatReadsBackEqual) {
  start_.mutable_precision()->set_mode(training::v1::PRECISION_MODE_MIXED_FP16);
  start_.mutable_spec()->mutable_training()->set_seed(std::numeric_limits<uint64_t>::max());
  Trainee trainee(start_, dataset_);
  trainee.step().Run();
  RunPosition position;
  position.step = 1;
  position.loss = 0.25;
  position.mode = training::v1::PRECISION_MODE_MIXED_FP16;
  const TrainingState state = trainee.TakeState(position);
  const std::string path = folder_.path() + "/x.pt";
  ASSERT_TRUE(WriteCheckpoint(state, path).ok());
  const auto read = ReadCheckpoint(path);
  ASSERT_TRUE(read.ok()) << read.status();
  ASSERT_EQ(read->model.size(), state.model.size());
  for (size_t i = 0; i < state.model.size(); ++i) {
    EXPECT_EQ(read->model[i].first, state.model[i].first);
    EXPECT_TRUE(torch::equal(read->model[i].second, state.model[i].second));
  }
  EXPECT_TRUE(torch::equal(read->optimizer[3].exp_avg_sq, state.optimizer[3].exp_avg_sq));
  EXPECT_TRUE(torch::equal(read->rng_state, state.rng_state));
  EXPECT_EQ(read->scaler->scale, 65536);
  EXPECT_EQ(read->position.seed, std::numeric_limits<uint64_t>::max());
  EXPECT_EQ(read->position.loss, 0.25);
  EXPECT_EQ(read->position.sampler.batch, 1);
  EXPECT_EQ(read->position.mode, training::v1::PRECISION_MODE_MIXED_FP16);
}

// Wherever a checkpoint is cut off or changed, it is refused, or what it held is unharmed.
TEST_F(TraineeTest, RefusesDamagedCheckpoints) {
  const std::string path = folder_.path() + "/x.pt";
  ASSERT_TRUE(WriteCheckpoint(Trainee(start_, dataset_).TakeState({}), path).ok());
  std::ifstream file(path, std::ios::binary);
  const std::string good((std::istreambuf_iterator<char>(file)), {});
  const size_t stride = good.size() / 97;
  for (size_t at = 0; at < good.size(); at += stride) {
    folder_.Write("cut.pt", good.substr(0, at));
    EXPECT_FALSE(ReadCheckpoint(folder_.path() + "/cut.pt").ok()) << at;
    std::string changed = good;
    changed[at] = static_cast<char>(changed[at] ^ 0x20);
    folder_.Write("changed.pt", changed);
    ReadCheckpoint(folder_.path() + "/changed.pt").status().IgnoreError();
  }
}

TEST_F(TraineeTest, NamesTheTensorThatIsNotFinite) {
  TrainingState state = Trainee(start_, dataset_).TakeState({});
  EXPECT_EQ(FirstNonFinite(state), "");
  state.optimizer[1].exp_avg.fill_(std::nanf(""));
  EXPECT_EQ(FirstNonFinite(state), "the optimizer's moments of encoder.0.bias");
  state.model[2].second.fill_(std::numeric_limits<float>::infinity());
  EXPECT_EQ(FirstNonFinite(state), "encoder.2.weight");
}

TEST_F(TraineeTest, SaysWhenAFileIsNoCheckpoint) {
  EXPECT_THAT(std::string(ReadCheckpoint(folder_.path() + "/spiral.npz").status().message()),
              HasSubstr("has no record data.pkl"));
}

}  // namespace
}  // namespace genesis
