// Tests of the curves of a job: writing, combining, reading, damage.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <limits>

#include "curves/curve_folder.h"
#include "curves/curve_writer.h"
#include "tests/temp_dir.h"

namespace genesis {
namespace {

using testing::IsEmpty;
using testing::SizeIs;

constexpr int64_t kSamples = 4;
constexpr auto kLoss = static_cast<size_t>(CurveMetric::kLoss);

// Returns a step whose loss is its number, plus 0.5 in a later attempt.
CurveStep Step(int64_t number, float more = 0) {
  CurveStep step{.step = number,
                 .samples = number * kSamples,
                 .time_ms = 1'700'000'000'000 + number * 500,
                 .seconds = static_cast<double>(number) / 2,
                 .mode = 2,
                 .skipped = number % 10 == 0};
  step.metrics[kLoss] = static_cast<float>(number) + more;
  return step;
}

class CurvesTest : public testing::Test {
 protected:
  // Writes the steps `first` to `last` as one attempt.
  void Write(int64_t claim, int64_t first, int64_t last, float more = 0, CurveLimits limits = {}) {
    CurveWriter writer(
        folder_, claim, [](const absl::Status& status) { ADD_FAILURE() << status; }, limits);
    for (int64_t step = first; step <= last; ++step) writer.Add(Step(step, more));
  }
  Curves Read(CurveQuery query = {}) {
    const absl::StatusOr<Curves> read = ReadCurves(folder_, query);
    EXPECT_TRUE(read.ok()) << read.status();
    return read.value_or(Curves());
  }
  std::vector<std::string> Files() {
    std::vector<std::string> names;
    const std::vector<CurveFile> files = *ListCurveFiles(folder_);
    for (const CurveFile& file : files) names.push_back(file.name.ToString());
    return names;
  }

  TempDir temp_;
  const std::string folder_ = temp_.path() + "/job";
};

TEST_F(CurvesTest, EveryStepIsReadAsItWasWritten) {
  EXPECT_THAT(Read().points, IsEmpty()) << "there is no folder yet";
  Write(1, 1, 100);
  const Curves read = Read();
  ASSERT_THAT(read.points, SizeIs(100));
  EXPECT_EQ(read.last_step, 100);
  for (int64_t step = 1; step <= 100; ++step) {
    const CurvePoint& point = read.points[static_cast<size_t>(step - 1)];
    EXPECT_EQ(point.first_step, step);
    EXPECT_EQ(point.last_step, step);
    EXPECT_EQ(point.steps, 1U);
    EXPECT_EQ(point.samples, step * kSamples);
    EXPECT_EQ(point.time_ms, 1'700'000'000'000 + step * 500);
    EXPECT_DOUBLE_EQ(point.seconds, static_cast<double>(step) / 2);
    EXPECT_EQ(point.skipped, step % 10 == 0 ? 1 : 0);
    EXPECT_EQ(point.modes, 1U << 2U);
    EXPECT_EQ(point.metrics[kLoss].mean, static_cast<float>(step));
  }
}

TEST_F(CurvesTest, APartIsReadInAsManyPointsAsAsked) {
  Write(1, 1, 1000);
  const Curves part = Read({.from_step = 101, .to_step = 300, .points = 10});
  ASSERT_THAT(part.points, SizeIs(10));
  EXPECT_EQ(part.points.front().first_step, 101);
  EXPECT_EQ(part.points.back().last_step, 300);
  EXPECT_EQ(part.last_step, 1000);
  uint32_t steps = 0, skipped = 0;
  for (const CurvePoint& point : part.points) {
    const CurveRange& loss = point.metrics[kLoss];
    EXPECT_EQ(loss.min, static_cast<float>(point.first_step));
    EXPECT_EQ(loss.max, static_cast<float>(point.last_step));
    EXPECT_FLOAT_EQ(loss.mean, (loss.min + loss.max) / 2);
    EXPECT_EQ(loss.count, point.steps);
    steps += point.steps;
    skipped += point.skipped;
  }
  EXPECT_EQ(steps, 200U);
  EXPECT_EQ(skipped, 20U);
}

TEST_F(CurvesTest, ValuesThatAreNotFiniteAreLeftOutAndCounted) {
  {
    CurveWriter writer(folder_, 1, nullptr);
    for (int64_t number = 1; number <= 4; ++number) {
      CurveStep step = Step(number);
      if (number == 2) step.metrics[kLoss] = std::nanf("");
      if (number == 3) step.metrics[kLoss] = std::numeric_limits<float>::infinity();
      writer.Add(step);
    }
  }
  const Curves read = Read({.points = 1});
  ASSERT_THAT(read.points, SizeIs(1));
  const CurvePoint& all = read.points.front();
  EXPECT_EQ(all.steps, 4U);
  EXPECT_EQ(all.metrics[kLoss].count, 2U);
  EXPECT_EQ(all.metrics[kLoss].min, 1);
  EXPECT_EQ(all.metrics[kLoss].max, 4);
  EXPECT_FLOAT_EQ(all.metrics[kLoss].mean, 2.5);
}

TEST_F(CurvesTest, StepsThatAreMadeAgainReplaceTheOldOnes) {
  Write(1, 1, 100);
  Write(2, 61, 80, 0.5);  // Continued from the checkpoint at step 60, then ended.
  const Curves read = Read();
  ASSERT_THAT(read.points, SizeIs(80));
  EXPECT_EQ(read.points[59].metrics[kLoss].mean, 60);
  EXPECT_EQ(read.points[60].metrics[kLoss].mean, 61.5);
  EXPECT_EQ(read.last_step, 80);
  // Within one attempt, a rewind does the same.
  {
    CurveWriter writer(folder_, 3, nullptr);
    for (const int64_t step : {81, 82, 83, 81, 82}) writer.Add(Step(step));
  }
  EXPECT_EQ(Read().last_step, 82);
  EXPECT_THAT(Read().points, SizeIs(82));
}

TEST_F(CurvesTest, NewStepsAreReadFromTheFilesThatHaveThem) {
  Write(1, 1, 100);
  Write(2, 61, 90, 0.5);
  Write(3, 91, 120);
  for (const int64_t from : {1, 50, 60, 61, 80, 91, 100, 120, 121}) {
    const Curves part = Read({.from_step = from});
    Curves whole = Read();
    std::erase_if(whole.points, [from](const CurvePoint& each) { return each.last_step < from; });
    ASSERT_EQ(part.points.size(), whole.points.size()) << from;
    EXPECT_EQ(part.last_step, 120);
    for (size_t i = 0; i < part.points.size(); ++i) {
      EXPECT_EQ(part.points[i].first_step, whole.points[i].first_step);
      EXPECT_EQ(part.points[i].metrics[kLoss].mean, whole.points[i].metrics[kLoss].mean);
    }
  }
  std::ofstream(folder_ + "/" + Files().front()) << "damaged";
  EXPECT_EQ(Read({.from_step = 95}).damaged_bytes, 0) << "the damaged file is not needed";
  EXPECT_EQ(Read().damaged_bytes, 7);
}

TEST_F(CurvesTest, OlderStepsAreCombinedHonestlyAndNoneIsCountedTwice) {
  constexpr CurveLimits kSmall{.steps = 1024, .points = 16, .steps_of_file = 256, .files = 8};
  constexpr int64_t kLast = 10'000;
  for (int64_t first = 1; first <= kLast; first += 100) {
    Write(first, first, first + 99, 0, kSmall);
    const Curves read = Read({.points = 1'000'000});
    ASSERT_EQ(read.last_step, first + 99);
    int64_t next = 1;
    double sum = 0;
    for (const CurvePoint& point : read.points) {
      ASSERT_EQ(point.first_step, next);
      ASSERT_EQ(point.last_step - point.first_step + 1, point.steps);
      next = point.last_step + 1;
      ASSERT_EQ(point.metrics[kLoss].min, static_cast<float>(point.first_step));
      ASSERT_EQ(point.metrics[kLoss].max, static_cast<float>(point.last_step));
      sum += double{point.metrics[kLoss].mean} * point.steps;
    }
    ASSERT_EQ(next, first + 100);
    const auto exact = static_cast<double>(read.last_step * (read.last_step + 1)) / 2;
    ASSERT_NEAR(sum / exact, 1, 1e-6);
  }
  EXPECT_LE(Files().size(), 4 * 8U + 1);
  // The newest steps are kept one by one.
  EXPECT_EQ(Read({.points = 1'000'000}).points.back().steps, 1U);
}

TEST_F(CurvesTest, ADamagedFileLosesNoMoreThanItsBlock) {
  Write(1, 1, 100);
  Write(2, 101, 200);
  Write(3, 201, 300);
  const std::string path = folder_ + "/" + Files()[1];
  const auto size = static_cast<int64_t>(std::filesystem::file_size(path));
  {
    std::fstream file(path, std::ios::in | std::ios::out | std::ios::binary);
    file.seekp(size / 2);
    file.put('\x7f');
  }
  const Curves flipped = Read();
  EXPECT_EQ(flipped.damaged_bytes, size);
  EXPECT_THAT(flipped.points, SizeIs(200)) << "the rest is shown";
  for (int64_t cut = size - 1; cut > 0; cut /= 2) {
    std::filesystem::resize_file(path, static_cast<uintmax_t>(cut));
    const Curves read = Read();
    EXPECT_EQ(read.damaged_bytes, cut);
    EXPECT_THAT(read.points, SizeIs(200));
  }
  std::filesystem::remove(path);
  EXPECT_EQ(Read().damaged_bytes, 0);
}

TEST_F(CurvesTest, HostileBytesCostBoundedWork) {
  std::string bytes;
  while (bytes.size() < (size_t{8} << 20U))
    bytes += std::string("GCRV\0\0\0\0\0\0\0\0\xff\xff\0\0", 16);
  std::vector<CurvePoint> points;
  EXPECT_EQ(DecodeBlocks(bytes, points), bytes.size());
  EXPECT_THAT(points, IsEmpty());
}

TEST_F(CurvesTest, AFolderThatCannotBeWrittenIsReportedOnceAndTrainingGoesOn) {
  temp_.Write("job", "a file");
  std::atomic<int> faults = 0;
  {
    CurveWriter writer(folder_, 1, [&](const absl::Status&) { ++faults; });
    for (int64_t step = 1; step <= 10; ++step) writer.Add(Step(2 * step));
  }
  EXPECT_EQ(faults, 1);
}

TEST(CurveFileNameTest, OnlyOwnFilesAreRead) {
  for (const char* name : {"0000000001-000000.0", "1234567890-999999.3"}) {
    ASSERT_TRUE(ParseCurveFileName(name)) << name;
    EXPECT_EQ(ParseCurveFileName(name)->ToString(), name);
  }
  for (const char* name : {"", "0000000001-000000.4", "0000000001-000000.0.tmp", "notes.txt",
                           "-000000001-000000.0", "0000000001_000000.0", "0000000001-00000a.0"}) {
    EXPECT_FALSE(ParseCurveFileName(name)) << name;
  }
}

}  // namespace
}  // namespace genesis
