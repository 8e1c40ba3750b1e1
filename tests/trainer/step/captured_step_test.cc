#include "trainer/step/captured_step.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "config/job/job_spec.h"
#include "tests/trainer/job_for_test.h"
#include "tests/trainer/threaded_communicators.h"
#include "tests/trainer/threaded_ranks.h"
#include "trainer/step/training_session.h"

namespace genesis {
namespace {

using testing::HasSubstr;
using testing::NanSensitiveDoubleEq;
using training::v1::PrecisionMode;

constexpr PrecisionMode kModes[] = {
    training::v1::PRECISION_MODE_FP32, training::v1::PRECISION_MODE_MIXED_BF16,
    training::v1::PRECISION_MODE_MIXED_FP16, training::v1::PRECISION_MODE_BF16};

// A fake CUDA graph on a CPU: work is stored instead of executed and runs when it is replayed. A
// GPU does not replay host code, so the work must not draw the host's random numbers.
class KeptWork : public StepGraph {
 public:
  struct Counts {
    int captured = 0;
    int replayed = 0;
  };
  // `alone` is false if another thread executes steps too, and so draws from the same generator.
  explicit KeptWork(Counts& counts, bool alone = true) : counts_(counts), alone_(alone) {}
  void Capture(const std::function<void()>& work) override {
    ++counts_.captured;
    work_ = work;
  }
  void Replay() override {
    ++counts_.replayed;
    const at::Generator generator = at::detail::getDefaultCPUGenerator();
    const torch::Tensor before = generator.get_state();
    work_();
    EXPECT_TRUE(!alone_ || torch::equal(generator.get_state(), before))
        << "drew numbers while it was replayed";
  }

 private:
  Counts& counts_;
  const bool alone_;
  std::function<void()> work_;
};

class UnrecordableWork : public StepGraph {
 public:
  void Capture(const std::function<void()>&) override {
    throw std::runtime_error("operation not permitted when stream is capturing");
  }
  void Replay() override { ADD_FAILURE() << "nothing was captured"; }
};

class CapturedStepTest : public testing::Test {
 protected:
  CapturedStepTest() {
    training::v1::TrainingSpec& training = *start_.mutable_spec()->mutable_training();
    training.set_gradient_accumulation_steps(2);
    training.set_ema_decay(0.9);
    start_.mutable_spec()->mutable_optimizer()->mutable_schedule()->set_warmup_steps(8);
  }

  std::unique_ptr<TrainingSession> Make(StepGraphMaker graphs = {}) {
    datasets_.push_back(*OpenDataset(start_.spec()));
    torch::manual_seed(5);
    return std::make_unique<TrainingSession>(start_, *datasets_.back(), at::kCPU, alone_,
                                             std::move(graphs));
  }
  StepGraphMaker Graphs() {
    return [this] { return std::make_unique<KeptWork>(counts_); };
  }
  // Runs steps whose metrics are read one step late, as a run does.
  static std::vector<StepMetrics> Steps(TrainingSession& session, int64_t first, int64_t last) {
    std::vector<StepMetrics> metrics;
    for (int64_t step = first; step <= last; ++step) {
      session.step().Run(step);
      if (session.step().unread() == 2) metrics.push_back(session.step().Read());
    }
    metrics.push_back(session.step().Read());
    return metrics;
  }
  static void ExpectEqual(const std::vector<StepMetrics>& one,
                          const std::vector<StepMetrics>& other) {
    ASSERT_EQ(one.size(), other.size());
    for (size_t i = 0; i < one.size(); ++i) {
      SCOPED_TRACE(i);
      EXPECT_EQ(one[i].loss, other[i].loss);
      EXPECT_THAT(one[i].grad_norm, NanSensitiveDoubleEq(other[i].grad_norm));
      EXPECT_EQ(one[i].loss_scale, other[i].loss_scale);
      EXPECT_EQ(one[i].learning_rate, other[i].learning_rate);
      EXPECT_EQ(one[i].skipped, other[i].skipped);
    }
  }

  TempDir folder_;
  training::v1::StartJob start_ = TinyJob(folder_);
  std::vector<std::unique_ptr<Dataset>> datasets_;  // Used by all training sessions.
  RankGroup alone_;
  KeptWork::Counts counts_;
};

TEST_F(CapturedStepTest, TrainsAsStepsThatAreMadeAnew) {
  start_.mutable_spec()->mutable_precision()->set_loss_scale(std::ldexp(1.0, 26));
  for (const PrecisionMode mode : kModes) {
    SCOPED_TRACE(training::v1::PrecisionMode_Name(mode));
    const auto eager = Make();
    eager->SetMode(mode);
    const std::vector<StepMetrics> wanted = Steps(*eager, 1, 12);

    counts_ = {};
    const auto replayed = Make(Graphs());
    replayed->SetMode(mode);
    EXPECT_EQ(replayed->execution(), "captured after the first steps, then replayed");
    ExpectEqual(Steps(*replayed, 1, 12), wanted);
    EXPECT_EQ(counts_.captured, 1);
    EXPECT_EQ(counts_.replayed, 9);
    EXPECT_EQ(replayed->step().TakeLogLine(), "captured in step 4, replayed from then on");
    EXPECT_EQ(replayed->step().TakeLogLine(), "");
    EXPECT_EQ(replayed->step().applied(), eager->step().applied());
  }
}

TEST_F(CapturedStepTest, TakesRandomNumbersFromItsInputs) {
  training::v1::JobSpec spec;
  spec.mutable_model()->mutable_radio_unet()->set_base_channels(8);
  spec.mutable_model()->mutable_radio_unet()->add_channel_multipliers(1);
  spec.mutable_dataset()->mutable_synthetic()->mutable_maps()->set_maps(64);
  spec.mutable_dataset()->mutable_synthetic()->mutable_maps()->set_size(8);
  spec.mutable_training()->set_max_steps(40);
  spec.mutable_training()->set_batch_size(4);
  for (const auto part :
       {training::v1::RADIO_UNET_PART_DIFFUSION, training::v1::RADIO_UNET_PART_VAE}) {
    spec.mutable_model()->mutable_radio_unet()->set_part(part);
    *start_.mutable_spec() = WithDefaults(spec, LossScaleSettings());
    const auto eager = Make();
    eager->SetMode(training::v1::PRECISION_MODE_FP32);
    const std::vector<StepMetrics> wanted = Steps(*eager, 1, 7);
    const auto replayed = Make(Graphs());
    replayed->SetMode(training::v1::PRECISION_MODE_FP32);
    ExpectEqual(Steps(*replayed, 1, 7), wanted);
  }
  EXPECT_EQ(counts_.replayed, 2 * 4);
}

TEST_F(CapturedStepTest, IsMadeAnewAfterWeightsHaveMoved) {
  const auto eager = Make();
  eager->SetMode(training::v1::PRECISION_MODE_BF16);
  const std::vector<StepMetrics> wanted = Steps(*eager, 1, 12);
  const auto replayed = Make(Graphs());
  replayed->SetMode(training::v1::PRECISION_MODE_BF16);
  std::vector<StepMetrics> found = Steps(*replayed, 1, 6);
  { const TrainingSession::Fp32Weights evaluation(*replayed); }
  for (const StepMetrics& metrics : Steps(*replayed, 7, 12)) found.push_back(metrics);
  ExpectEqual(found, wanted);
  EXPECT_EQ(counts_.captured, 2);
}

TEST_F(CapturedStepTest, GoesOnEagerWhereCaptureFails) {
  const auto eager = Make();
  eager->SetMode(training::v1::PRECISION_MODE_FP32);
  const std::vector<StepMetrics> wanted = Steps(*eager, 1, 8);
  const auto failing = Make([] { return std::make_unique<UnrecordableWork>(); });
  failing->SetMode(training::v1::PRECISION_MODE_FP32);
  ExpectEqual(Steps(*failing, 1, 8), wanted);
  EXPECT_EQ(failing->step().TakeLogLine(),
            "eager from step 4 on, because capture failed: operation not permitted when stream is "
            "capturing");
  EXPECT_THAT(failing->execution(), HasSubstr("eager, because capture failed"));
}

TEST_F(CapturedStepTest, LeavesAloneWhatDiffersFromStepToStep) {
  training::v1::RehearsalSpec& rehearsal = *start_.mutable_spec()->add_rehearsals();
  rehearsal.set_kind(training::v1::REHEARSAL_KIND_SPIKE);
  rehearsal.set_at_step(5);
  const auto session = Make(Graphs());
  session->SetMode(training::v1::PRECISION_MODE_FP32);
  Steps(*session, 1, 8);
  EXPECT_EQ(session->execution(), "eager, because rehearsals change single steps");
  EXPECT_EQ(counts_.captured, 0);
}

// The graph contains the device part of a step. The hosts of the ranks agree at each replay.
TEST_F(CapturedStepTest, OfSeveralRanksTrainsAsStepsThatAreMadeAnew) {
  std::mutex one_at_a_time;
  const auto train = [&](const std::function<StepGraphMaker(size_t)>& graphs) {
    ThreadedCommunicators communicators;
    RankOptions options;
    options.communicators = &communicators;
    std::vector<std::vector<StepMetrics>> metrics(2);
    WithRanks(2, options, [&](RankGroup& ranks) {
      const auto rank = static_cast<size_t>(ranks.rank());
      std::unique_lock<std::mutex> lock(one_at_a_time);
      const auto dataset = *OpenDataset(start_.spec());
      lock.unlock();
      TrainingSession session(start_, *dataset, at::kCPU, ranks, graphs(rank));
      for (const torch::Tensor& weight : session.Parts().weights.masters()) {
        weight.detach().copy_(torch::linspace(-0.1, 0.1, weight.numel()).view_as(weight));
      }
      session.SetMode(training::v1::PRECISION_MODE_FP32);
      EXPECT_THAT(session.exchange(), HasSubstr("by NCCL"));
      ranks.SetFlags({.seconds = 7.0 + ranks.rank()});
      metrics[rank] = Steps(session, 1, 9);
      EXPECT_EQ(ranks.agreed().seconds, 7.5);
    });
    ExpectEqual(metrics[0], metrics[1]);
    return metrics[0];
  };
  const std::vector<StepMetrics> wanted = train([](size_t) { return StepGraphMaker(); });
  std::vector<KeptWork::Counts> counts(2);
  ExpectEqual(train([&](size_t rank) {
                return [&counts, rank] {
                  return std::make_unique<KeptWork>(counts[rank], /*alone=*/false);
                };
              }),
              wanted);
  for (const KeptWork::Counts& each : counts) {
    EXPECT_EQ(each.captured, 1);
    EXPECT_EQ(each.replayed, 6);
  }
}

}  // namespace
}  // namespace genesis
