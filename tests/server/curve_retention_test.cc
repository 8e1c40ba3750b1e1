// Tests of the bound of the curves of all jobs.
#include "server/checkpoints/curve_retention.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <map>

#include "absl/time/clock.h"
#include "curves/curve_folder.h"
#include "curves/curve_writer.h"
#include "tests/temp_dir.h"

namespace genesis {
namespace {

namespace fs = std::filesystem;

constexpr int64_t kSteps = 10'000;
constexpr int64_t kRowBytes = 32;

class CurveRetentionTest : public testing::Test {
 protected:
  // Writes the curves of a job, the last of which was written `age` ago.
  void Write(const std::string& job_id, absl::Duration age, CurveOwner owner) {
    owners_[job_id] = owner;
    const std::string folder = CurveFolder(temp_.path(), job_id);
    {
      CurveWriter writer(folder, 1, nullptr);
      for (int64_t step = 1; step <= kSteps; ++step) writer.Add({.step = step});
    }
    const auto files = *ListCurveFiles(folder);
    for (const CurveFile& file : files) {
      fs::last_write_time(folder + "/" + file.name.ToString(),
                          fs::file_time_type::clock::now() - absl::ToChronoSeconds(age));
    }
  }
  void Bound(int64_t max_bytes) {
    BoundCurves(temp_.path(), max_bytes, absl::Now(),
                [this](const std::string& job_id) { return owners_[job_id]; });
  }
  int64_t Points(const std::string& job_id) {
    const auto curves = ReadCurves(CurveFolder(temp_.path(), job_id), {.points = 2 * kSteps});
    return curves.ok() ? static_cast<int64_t>(curves->points.size()) : -1;
  }

  TempDir temp_;
  std::map<std::string, CurveOwner> owners_;
};

TEST_F(CurveRetentionTest, TheJobsThatEndedLongestAgoAreKeptMoreCoarselyFirst) {
  Write("old", absl::Hours(3), CurveOwner::kEnded);
  Write("new", absl::Hours(1), CurveOwner::kEnded);
  Write("open", absl::Hours(9), CurveOwner::kOpen);
  Bound(4 * kSteps * kRowBytes);
  EXPECT_EQ(Points("old"), kSteps) << "there is room";
  Bound(5 * kSteps * kRowBytes / 2);
  EXPECT_EQ(Points("old"), kSteps / 64 + 1);
  EXPECT_EQ(Points("new"), kSteps);
  Bound(2 * kSteps * kRowBytes - 1);
  EXPECT_EQ(Points("new"), kSteps / 64 + 1);
  Bound(0);
  EXPECT_EQ(Points("old"), 0);
  EXPECT_EQ(Points("new"), 0);
  EXPECT_EQ(Points("open"), kSteps);
}

TEST_F(CurveRetentionTest, CurvesWithoutAJobAreKeptForAWeek) {
  Write("recent", absl::Hours(24 * 6), CurveOwner::kUnknown);
  Write("forgotten", absl::Hours(24 * 8), CurveOwner::kUnknown);
  Write("ended", absl::Hours(24 * 8), CurveOwner::kEnded);
  temp_.Write("notes-curves", "a file of the user");
  Bound(int64_t{1} << 40);
  EXPECT_EQ(Points("recent"), kSteps);
  EXPECT_FALSE(fs::exists(CurveFolder(temp_.path(), "forgotten")));
  EXPECT_EQ(Points("ended"), kSteps);
  EXPECT_TRUE(fs::exists(temp_.path() + "/notes-curves"));
  RemoveCurves(temp_.path(), "ended");
  EXPECT_EQ(Points("ended"), 0);
}

}  // namespace
}  // namespace genesis
