#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "tests/temp_dir.h"
#include "trainer/precision/loss_curve.h"
#include "trainer/precision/policy.h"

namespace genesis {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using training::v1::PrecisionSpec;

constexpr auto kFp32 = training::v1::PRECISION_MODE_FP32;
constexpr auto kBf16 = training::v1::PRECISION_MODE_BF16;
constexpr auto kMixedBf16 = training::v1::PRECISION_MODE_MIXED_BF16;
constexpr auto kMixedFp16 = training::v1::PRECISION_MODE_MIXED_FP16;

TEST(PolicyTest, GoesDownTheListAndUpAgainAfterCleanSteps) {
  PrecisionSpec spec;
  spec.set_promote_after_steps(3);
  spec.set_max_promotions(1);
  PrecisionPolicy policy(spec, {kMixedFp16, kMixedBf16, kFp32}, kMixedFp16);
  ASSERT_EQ(policy.Fallback(), kMixedBf16);
  policy.FallBackTo(kMixedBf16);
  ASSERT_EQ(policy.Fallback(), kFp32);
  policy.FallBackTo(kFp32);
  EXPECT_EQ(policy.Fallback(), std::nullopt);
  policy.AddCleanStep();
  policy.AddCleanStep();
  EXPECT_EQ(policy.Promotion(), std::nullopt);
  policy.TroubleSeen();
  for (int i = 0; i < 3; ++i) policy.AddCleanStep();
  ASSERT_EQ(policy.Promotion(), kMixedBf16);
  policy.Promote();
  EXPECT_EQ(policy.mode(), kMixedBf16);
  // The policy allows only one promotion.
  for (int i = 0; i < 3; ++i) policy.AddCleanStep();
  EXPECT_EQ(policy.Promotion(), std::nullopt);
  EXPECT_EQ(policy.Fallback(), kFp32);
}

TEST(PolicyTest, AResumedRunHasMadeThePromotionsOfTheOneBefore) {
  PrecisionSpec spec;
  spec.set_promote_after_steps(2);
  spec.set_max_promotions(1);
  const std::vector<training::v1::PrecisionMode> allowed = {kMixedFp16, kMixedBf16, kFp32};
  PrecisionPolicy before(spec, allowed, kMixedFp16);
  before.FallBackTo(kMixedBf16);
  before.Promote();
  before.AddCleanStep();
  const auto go_on_from = [&](training::v1::PrecisionMode first) {
    PrecisionPolicy resumed(spec, allowed, first);
    resumed.LoadState(before.mode(), before.state());
    return resumed;
  };
  PrecisionPolicy resumed = go_on_from(kMixedFp16);
  EXPECT_EQ(resumed.mode(), kMixedFp16);
  EXPECT_EQ(resumed.state().clean_steps, 1);
  resumed.FallBackTo(kMixedBf16);
  for (int i = 0; i < 2; ++i) resumed.AddCleanStep();
  EXPECT_EQ(resumed.Promotion(), std::nullopt) << "it had one, which is all";
  // A job that starts in another mode gets a new policy.
  PrecisionPolicy other = go_on_from(kMixedBf16);
  EXPECT_EQ(other.mode(), kMixedBf16);
  other.FallBackTo(kFp32);
  for (int i = 0; i < 2; ++i) other.AddCleanStep();
  EXPECT_EQ(other.Promotion(), kMixedBf16);
}

TEST(PolicyTest, SkipsFallbacksThatGateOrDeviceForbid) {
  PrecisionSpec spec;
  spec.add_fallbacks(kBf16);
  spec.add_fallbacks(kMixedBf16);
  EXPECT_EQ(PrecisionPolicy(spec, {kMixedBf16}, kMixedFp16).Fallback(), kMixedBf16);
  EXPECT_EQ(PrecisionPolicy(spec, {}, kMixedFp16).Fallback(), kFp32);
}

TEST(ReachableModesTest, AreWhatTheJobBeginsInAndFallsBackTo) {
  PrecisionSpec spec;
  const std::vector<training::v1::PrecisionMode> allowed = {kFp32, kBf16, kMixedBf16};
  EXPECT_THAT(ReachableModes(spec, allowed, kFp32), ElementsAre(kFp32));
  EXPECT_THAT(ReachableModes(spec, allowed, kMixedBf16), ElementsAre(kFp32, kMixedBf16));
  EXPECT_THAT(ReachableModes(spec, allowed, kBf16), ElementsAre(kFp32, kBf16, kMixedBf16));
  EXPECT_THAT(ReachableModes(spec, {kFp32}, kBf16), ElementsAre(kFp32, kBf16));
  spec.add_fallbacks(kFp32);
  EXPECT_THAT(ReachableModes(spec, allowed, kBf16), ElementsAre(kFp32, kBf16));
  spec.set_fallbacks(0, kBf16);
  EXPECT_THAT(ReachableModes(spec, allowed, kMixedBf16), ElementsAre(kFp32, kBf16, kMixedBf16));
}

TEST(ReachableModesTest, OfAutoAreThoseItMeasures) {
  const PrecisionSpec spec;
  EXPECT_THAT(ReachableModes(spec, {kMixedBf16, kFp32}, training::v1::PRECISION_MODE_AUTO),
              ElementsAre(kFp32, kMixedBf16));
  EXPECT_THAT(ReachableModes(spec, {}, training::v1::PRECISION_MODE_AUTO), ElementsAre(kFp32));
}

TEST(LossCurveTest, StaysSmallAndCloseToTheLosses) {
  LossRecorder recorder;
  for (int64_t step = 1; step <= 100'000; ++step) {
    recorder.Add(step, 1e5 / static_cast<double>(step + 1000), 0.25);
  }
  const training::v1::LossCurve curve = recorder.curve();
  EXPECT_LT(curve.steps_size(), 1024);
  EXPECT_GE(curve.steps_size(), 512);
  EXPECT_EQ(curve.step_seconds(), 0.25);
  const Baseline baseline(curve);
  EXPECT_FALSE(baseline.Covers(100'001));
  for (const int64_t step : {5'000, 50'000, 99'000}) {
    ASSERT_TRUE(baseline.Covers(step));
    EXPECT_NEAR(baseline.At(step), 1e5 / static_cast<double>(step + 1000), 0.05);
  }
}

TEST(LossCurveTest, KeepsLogarithmsTheirScatterAndHeldOutLosses) {
  LossRecorder recorder;
  for (int64_t step = 1; step <= 5000; ++step) {
    recorder.Add(step, step % 2 == 0 ? std::exp(1.0) : std::exp(-1.0), 0.25, 0.125);
    if (step % 2 == 0) recorder.AddHeldOut(step, 7.0 / static_cast<double>(step));
  }
  const training::v1::LossCurve curve = recorder.curve();
  EXPECT_EQ(curve.step_processor_seconds(), 0.125);
  ASSERT_EQ(curve.log_losses_size(), curve.losses_size());
  ASSERT_EQ(curve.log_variances_size(), curve.losses_size());
  EXPECT_NEAR(curve.log_losses(3), 0, 1e-9);
  EXPECT_NEAR(curve.log_variances(3), 1, 1e-9);
  EXPECT_NEAR(curve.losses(3), std::cosh(1.0), 1e-9);
  EXPECT_LT(curve.held_out_steps_size(), 1024);
  const Baseline baseline(curve);
  EXPECT_NEAR(*baseline.HeldOutAt(5000), 7.0 / 5000, 1e-12);
  EXPECT_NEAR(*baseline.HeldOutAt(3001), 7.0 / 3001, 1e-6);
  EXPECT_EQ(baseline.HeldOutAt(5001), std::nullopt);
  EXPECT_NEAR(baseline.LogAt(2500), 0, 1e-9);
}

TEST(LossCurveTest, AnOlderCurveHasTheLogarithmsOfItsLosses) {
  training::v1::LossCurve curve;
  curve.add_steps(1);
  curve.add_steps(3);
  curve.add_losses(1);
  curve.add_losses(std::exp(2.0));
  EXPECT_NEAR(Baseline(curve).LogAt(2), 1, 1e-12);
  EXPECT_EQ(Baseline(curve).HeldOutAt(2), std::nullopt);
  EXPECT_TRUE(std::isfinite(LogLoss(-5)));
}

TEST(LossCurveTest, ReadsTelemetryAndNamesTheFaultyLine) {
  const TempDir folder;
  folder.Write("good.jsonl",
               "{\"step\":1,\"loss\":4,\"x\":true}\n{\"step\":2,\"loss\":null}\n"
               "{\"step\":3,\"loss\":2}\n");
  const auto curve = ReadLossCurve(folder.path() + "/good.jsonl");
  ASSERT_TRUE(curve.ok()) << curve.status();
  EXPECT_EQ(Baseline(*curve).At(2), 3);
  const std::pair<const char*, const char*> rows[] = {
      {"", "holds no losses"},
      {"{\"step\":1,\"loss\":1}\nnonsense\n", ":2: is not a JSON object"},
      {"{\"loss\":1}\n", ":1: has no step and loss"},
      {"{\"step\":2,\"loss\":1}\n{\"step\":2,\"loss\":1}\n", ":2: has step 2 after 2"},
      {"{\"step\":1.5,\"loss\":1}\n", ":1: has step 1.5 after 0"},
      {"{\"step\":-4,\"loss\":1}\n", ":1: has step -4 after 0"}};
  for (const auto& [text, fault] : rows) {
    folder.Write("bad.jsonl", text);
    EXPECT_THAT(std::string(ReadLossCurve(folder.path() + "/bad.jsonl").status().message()),
                HasSubstr(fault))
        << text;
  }
  EXPECT_TRUE(absl::IsNotFound(ReadLossCurve("/nowhere.jsonl").status()));
}

}  // namespace
}  // namespace genesis
