#include "trainer/step/train_step.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <ATen/record_function.h>

#include <atomic>
#include <cmath>
#include <fstream>
#include <limits>
#include <memory>
#include <string_view>
#include <vector>

#include "absl/strings/match.h"
#include "tests/trainer/job_for_test.h"
#include "tests/trainer/same_state.h"
#include "trainer/checkpoint/checkpoint_reader.h"
#include "trainer/checkpoint/write_checkpoint.h"
#include "trainer/distributed/rank_group.h"
#include "trainer/precision/autocast_guard.h"
#include "trainer/step/training_session.h"

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

class TrainingSessionTest : public testing::Test {
 protected:
  TrainingSessionTest() {
    start_ = TinyJob(folder_);
    dataset_ = *OpenDataset(start_.spec());
  }
  // Runs one step and returns its metrics.
  static StepMetrics Step(TrainingSession& session, int64_t step) {
    session.step().Run(step);
    return session.step().Read();
  }

  TempDir folder_;
  training::v1::StartJob start_;
  std::unique_ptr<Dataset> dataset_;
  RankGroup alone_;
};

TEST_F(TrainingSessionTest, ReadsFiguresOneStepLate) {
  TrainingSession at_once(start_, *dataset_, at::kCPU, alone_);
  std::vector<double> wanted;
  for (int i = 1; i <= 3; ++i) wanted.push_back(Step(at_once, i).loss);
  TrainingSession late(start_, *dataset_, at::kCPU, alone_);
  std::vector<double> losses;
  late.step().Run(1);
  late.step().Run(2);
  losses.push_back(late.step().Read().loss);
  late.step().Run(3);
  EXPECT_EQ(late.step().unread(), 2);
  losses.push_back(late.step().Read().loss);
  losses.push_back(late.step().Read().loss);
  EXPECT_EQ(late.step().unread(), 0);
  EXPECT_EQ(losses, wanted);
}

// Every read of a number from a device calls _local_scalar_dense, on CPUs as on GPUs. The
// CPU kernels of fused optimizers also read their step counts with it, from host
// memory; the CUDA kernels do not.
std::atomic<int> reads{0};
std::atomic<int> inside_fused{0};
bool IsFused(const at::RecordFunction& function) {
  return absl::StartsWith(function.name(), "aten::_fused_");
}
std::unique_ptr<at::ObserverContext> CountReads(const at::RecordFunction& function) {
  if (IsFused(function)) ++inside_fused;
  const bool read = std::string_view(function.name()) == "aten::_local_scalar_dense";
  if (read && inside_fused == 0) ++reads;
  return nullptr;
}
void LeaveFused(const at::RecordFunction& function, at::ObserverContext*) {
  if (IsFused(function)) --inside_fused;
}

TEST_F(TrainingSessionTest, NeverWaitsForTheDeviceInAHealthyStep) {
  start_.mutable_spec()->mutable_optimizer()->mutable_schedule()->set_warmup_steps(5);
  start_.mutable_spec()->mutable_training()->set_ema_decay(0.9);
  start_.mutable_spec()->mutable_training()->set_gradient_accumulation_steps(2);
  start_.mutable_spec()->mutable_precision()->set_hysteresis(2);
  const at::Device device = WantedDevice();
  const auto handle = at::addGlobalCallback(at::RecordFunctionCallback(CountReads, LeaveFused));
  torch::ones({}).item<float>();
  EXPECT_EQ(reads.exchange(0), 1);  // Checks the counter.
  for (const auto mode :
       {training::v1::PRECISION_MODE_FP32, training::v1::PRECISION_MODE_MIXED_BF16,
        training::v1::PRECISION_MODE_BF16, training::v1::PRECISION_MODE_MIXED_FP16,
        training::v1::PRECISION_MODE_FP16}) {
    TrainingSession session(start_, *dataset_, device, alone_);
    session.SetMode(mode);
    reads = 0;
    for (int i = 1; i <= 10; ++i) Step(session, i);
    EXPECT_EQ(reads, 0) << mode;
  }
  at::removeCallback(handle);
}

TEST_F(TrainingSessionTest, CountsSkippedStepsInNoSchedule) {
  start_.mutable_spec()->mutable_optimizer()->mutable_schedule()->set_warmup_steps(8);
  start_.mutable_spec()->mutable_precision()->set_loss_scale(std::ldexp(1.0, 40));
  TrainingSession session(start_, *dataset_, at::kCPU, alone_);
  session.SetMode(training::v1::PRECISION_MODE_MIXED_FP16);
  int64_t applied = 0;
  bool skipped_some = false;
  session.step().Run(1);
  for (int64_t step = 2; step <= 40; ++step) {
    session.step().Run(step);  // The previous step is still unread.
    const StepMetrics metrics = session.step().Read();
    const double wanted = start_.spec().optimizer().learning_rate() *
                          static_cast<double>(std::min<int64_t>(applied + 1, 8)) / 8;
    EXPECT_FLOAT_EQ(static_cast<float>(metrics.learning_rate), static_cast<float>(wanted)) << step;
    skipped_some = skipped_some || metrics.skipped;
    if (!metrics.skipped) ++applied;
  }
  EXPECT_TRUE(skipped_some);
  EXPECT_GT(applied, 10);
  EXPECT_EQ(session.step().applied(), applied);
}

RunPosition AtStep5() {
  RunPosition position;
  position.progress.set_step(5);
  return position;
}

// A checkpoint of any precision mode can be resumed in any mode.
TEST_F(TrainingSessionTest, CarriesCheckpointsBetweenAllModes) {
  const training::v1::PrecisionMode modes[] = {
      training::v1::PRECISION_MODE_FP32, training::v1::PRECISION_MODE_FP16,
      training::v1::PRECISION_MODE_BF16, training::v1::PRECISION_MODE_MIXED_FP16,
      training::v1::PRECISION_MODE_MIXED_BF16};
  const std::string path = folder_.path() + "/x.pt";
  for (const auto from : modes) {
    TrainingSession saved(start_, *dataset_, at::kCPU, alone_);
    saved.SetMode(from);
    for (int i = 1; i <= 5; ++i) Step(saved, i);
    const TrainingState state = saved.TakeState(AtStep5());
    for (const auto& [name, tensor] : state.model) {
      EXPECT_EQ(tensor.scalar_type(), at::kFloat) << name;
    }
    ASSERT_TRUE(WriteCheckpoint(state, path).ok());
    const auto read = ReadCheckpoint(path);
    ASSERT_TRUE(read.ok()) << read.status();
    EXPECT_EQ(read->position.progress.mode(), from);
    for (const auto to : modes) {
      TrainingSession resumed(start_, *dataset_, at::kCPU, alone_);
      ASSERT_TRUE(resumed.PutState(*read, to).ok());
      const TrainingState back = resumed.TakeState(AtStep5());
      for (size_t i = 0; i < state.model.size(); ++i) {
        EXPECT_TRUE(torch::equal(back.model[i].second, state.model[i].second));
      }
      for (size_t i = 0; i < state.optimizer.parameters.size(); ++i) {
        EXPECT_TRUE(torch::equal(back.optimizer.parameters[i][2].second,
                                 state.optimizer.parameters[i][2].second));
      }
      StepMetrics metrics;
      int64_t step = 6;
      do metrics = Step(resumed, step++);
      while (metrics.skipped && step < 40);
      EXPECT_FALSE(metrics.skipped) << from << " to " << to;
      EXPECT_TRUE(std::isfinite(metrics.loss)) << from << " to " << to;
    }
  }
}

TEST_F(TrainingSessionTest, WritesACheckpointThatReadsBackEqual) {
  start_.mutable_precision()->set_mode(training::v1::PRECISION_MODE_MIXED_FP16);
  start_.mutable_spec()->mutable_training()->set_seed(std::numeric_limits<uint64_t>::max());
  TrainingSession session(start_, *dataset_, at::kCPU, alone_);
  session.SetMode(training::v1::PRECISION_MODE_MIXED_FP16);
  Step(session, 1);
  RunPosition position;
  position.progress.set_step(1);
  position.progress.set_loss(0.25);
  const TrainingState state = session.TakeState(position);
  const std::string path = folder_.path() + "/x.pt";
  ASSERT_TRUE(WriteCheckpoint(state, path).ok());
  const auto read = ReadCheckpoint(path);
  ASSERT_TRUE(read.ok()) << read.status();
  ASSERT_EQ(read->model.size(), state.model.size());
  for (size_t i = 0; i < state.model.size(); ++i) {
    EXPECT_EQ(read->model[i].first, state.model[i].first);
    EXPECT_TRUE(torch::equal(read->model[i].second, state.model[i].second));
  }
  EXPECT_TRUE(torch::equal(read->optimizer.parameters[3][2].second,
                           state.optimizer.parameters[3][2].second));
  EXPECT_TRUE(torch::equal(read->rng_state, state.rng_state));
  EXPECT_EQ(read->scaler->scale, 65536);
  EXPECT_EQ(read->position.seed, std::numeric_limits<uint64_t>::max());
  EXPECT_EQ(read->position.progress.loss(), 0.25);
  EXPECT_EQ(read->position.sampler.batch, 1);
  EXPECT_EQ(read->position.progress.mode(), training::v1::PRECISION_MODE_MIXED_FP16);
}

// A checkpoint that is truncated or changed must be refused, or its content must be intact.
TEST_F(TrainingSessionTest, RefusesDamagedCheckpoints) {
  const std::string path = folder_.path() + "/x.pt";
  ASSERT_TRUE(
      WriteCheckpoint(TrainingSession(start_, *dataset_, at::kCPU, alone_).TakeState({}), path)
          .ok());
  std::ifstream file(path, std::ios::binary);
  const std::string good((std::istreambuf_iterator<char>(file)), {});
  const absl::StatusOr<TrainingState> sound = ReadCheckpoint(path);
  ASSERT_TRUE(sound.ok()) << sound.status();
  const size_t stride = good.size() / 97;
  for (size_t at = 0; at < good.size(); at += stride) {
    folder_.Write("cut.pt", good.substr(0, at));
    EXPECT_FALSE(ReadCheckpoint(folder_.path() + "/cut.pt").ok()) << at;
    std::string changed = good;
    changed[at] = static_cast<char>(changed[at] ^ 0x20);
    folder_.Write("changed.pt", changed);
    const absl::StatusOr<TrainingState> read = ReadCheckpoint(folder_.path() + "/changed.pt");
    if (!read.ok()) continue;
    ASSERT_EQ(Difference(*read, *sound), "") << at;
  }
}

// The tensors are large enough that they are still being copied while the next step runs.
TEST_F(TrainingSessionTest, AStateThatIsCopiedDuringTheNextStepIsThatOfBefore) {
  start_.mutable_spec()->mutable_model()->mutable_world_model()->set_hidden_size(256);
  start_.mutable_spec()->mutable_training()->set_ema_decay(0.9);
  TrainingSession session(start_, *dataset_, at::kCPU, alone_);
  for (int step = 1; step <= 30; ++step) {
    Step(session, step);
    const TrainingState whole = session.TakeState(AtStep5());
    const TrainingState begun = session.BeginState(AtStep5());
    // Two copies may begin in one step: for the last good state and for a checkpoint.
    const TrainingState again = session.BeginState(AtStep5());
    Step(session, ++step);
    begun.Complete();
    again.Complete();
    for (const TrainingState* taken : {&begun, &again}) {
      for (size_t i = 0; i < whole.model.size(); ++i) {
        EXPECT_TRUE(torch::equal(taken->model[i].second, whole.model[i].second));
      }
      for (size_t i = 0; i < whole.ema.size(); ++i) {
        EXPECT_TRUE(torch::equal(taken->ema[i].second, whole.ema[i].second));
        EXPECT_TRUE(torch::equal(taken->optimizer.parameters[i][2].second,
                                 whole.optimizer.parameters[i][2].second));
      }
    }
    EXPECT_FALSE(torch::equal(session.TakeState(AtStep5()).model[0].second, whole.model[0].second));
  }
}

TEST_F(TrainingSessionTest, AnotherStatePutBackDoesNotReachOneThatIsBeingCopied) {
  start_.mutable_spec()->mutable_model()->mutable_world_model()->set_hidden_size(256);
  TrainingSession session(start_, *dataset_, at::kCPU, alone_);
  const TrainingState first = session.TakeState(AtStep5());
  Step(session, 1);
  const TrainingState whole = session.TakeState(AtStep5());
  const TrainingState begun = session.BeginState(AtStep5());
  ASSERT_TRUE(session.PutState(first, training::v1::PRECISION_MODE_FP32).ok());
  begun.Complete();
  for (size_t i = 0; i < whole.model.size(); ++i) {
    EXPECT_TRUE(torch::equal(begun.model[i].second, whole.model[i].second));
  }
}

TEST_F(TrainingSessionTest, NamesTheTensorThatIsNotFinite) {
  TrainingState state = TrainingSession(start_, *dataset_, at::kCPU, alone_).TakeState({});
  EXPECT_EQ(FirstNonFinite(state), "");
  state.model[3].second.fill_(std::numeric_limits<float>::max());
  EXPECT_EQ(FirstNonFinite(state), "") << "the sum is not finite, but every term is";
  state.optimizer.parameters[1][1].second.fill_(std::nanf(""));
  EXPECT_EQ(FirstNonFinite(state), "the optimizer's exp_avg of encoder.0.bias");
  state.model[2].second.fill_(std::numeric_limits<float>::infinity());
  EXPECT_EQ(FirstNonFinite(state), "encoder.2.weight");
  state.model[2].second.fill_(1);
  state.optimizer.parameters[1][1].second.fill_(1);
  const auto& [buffer, mask] = state.model.back();
  mask.fill_(-std::numeric_limits<float>::infinity());
  EXPECT_EQ(FirstNonFinite(state), buffer);
  state.with_infinities.insert(buffer);
  EXPECT_EQ(FirstNonFinite(state), "");
  mask[0].fill_(std::nanf(""));
  EXPECT_EQ(FirstNonFinite(state), buffer);
}

TEST_F(TrainingSessionTest, SaysWhenAFileIsNoCheckpoint) {
  EXPECT_THAT(std::string(ReadCheckpoint(folder_.path() + "/spiral.npz").status().message()),
              HasSubstr("is a zip file with 0 records data.pkl"));
}

}  // namespace
}  // namespace genesis
