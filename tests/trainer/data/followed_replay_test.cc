#include "trainer/data/followed_replay.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <memory>
#include <random>
#include <set>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "replay/replay_writer.h"
#include "tests/replay/transitions.h"
#include "tests/temp_dir.h"
#include "tests/trainer/data_files.h"
#include "trainer/data/followed_sampler.h"
#include "trainer/data/holdout.h"
#include "trainer/data/splitmix.h"

namespace genesis {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

constexpr double kHoldout = 0.3;

class FollowedReplayTest : public testing::Test {
 protected:
  FollowedReplayTest() { OpenWriter(60); }

  void OpenWriter(int64_t capacity) {
    writer_.reset();
    auto writer = ReplayWriter::Open(
        folder_.path(), {.layout = kLayout, .capacity = capacity, .segment_transitions = 8});
    ASSERT_TRUE(writer.ok()) << writer.status();
    writer_ = *std::move(writer);
  }

  std::unique_ptr<FollowedReplay> Open(int rollout_steps = 1, int64_t newest = 0,
                                       bool prioritized = false) const {
    training::v1::JobSpec spec = WorldModelJob(rollout_steps);
    training::v1::ReplaySpec& replay = *spec.mutable_dataset()->mutable_replay();
    replay.set_path(folder_.path());
    replay.set_holdout_fraction(kHoldout);
    replay.set_follow(true);
    replay.set_newest_transitions(newest);
    if (prioritized) {
      spec.mutable_dataset()->mutable_sampling()->set_kind(training::v1::SAMPLING_KIND_PRIORITIZED);
    }
    auto dataset = FollowedReplay::Open(spec);
    EXPECT_TRUE(dataset.ok()) << dataset.status();
    return dataset.ok() ? *std::move(dataset) : nullptr;
  }

  // Appends transitions whose rewards are their numbers. `ends` says that the last one ends an
  // episode.
  void Append(int count, bool ends) {
    std::vector<ReplayTransition> transitions;
    for (int i = 0; i < count; ++i) {
      const auto x = static_cast<float>(next_ + static_cast<uint64_t>(i));
      transitions.push_back({.observation = {x, -x},
                             .action = {x / 2},
                             .next_observation = {x + 1, -x - 2},
                             .reward = x,
                             .terminal = ends && i + 1 == count,
                             .timeout = false,
                             .priority = {}});
      priorities_.push_back(0);
      // Each third append has no priorities.
      if (next_ % 3 == 0) continue;
      priorities_.back() = static_cast<float>(1 + priorities_.size() * 7 % 31);
      transitions.back().priority = priorities_.back();
    }
    ASSERT_TRUE(AppendTo(*writer_, absl::StrCat(next_), transitions).ok());
    if (starts_.empty() || ended_) starts_.push_back(next_);
    ended_ = ends;
    next_ += static_cast<uint64_t>(count);
  }

  static void Follow(FollowedReplay& dataset) {
    const auto range = dataset.Look();
    ASSERT_TRUE(range.ok()) << range.status();
    dataset.Take(*range);
  }

  // Returns the numbers of the first transitions of the examples, from their rewards.
  static std::vector<uint64_t> Numbers(const FollowedReplay& dataset, bool training,
                                       int steps = 1) {
    std::vector<int64_t> examples;
    for (int64_t i = 0; i < dataset.size(); ++i) {
      if ((i < dataset.training_size()) == training) examples.push_back(i);
    }
    const std::vector<float> rewards = FieldValues<float>(dataset, examples, "reward");
    std::vector<uint64_t> numbers;
    for (size_t i = 0; i < rewards.size(); i += static_cast<size_t>(steps)) {
      for (int step = 1; step < steps; ++step) {
        EXPECT_EQ(rewards[i + static_cast<size_t>(step)], rewards[i] + static_cast<float>(step));
      }
      numbers.push_back(static_cast<uint64_t>(rewards[i]));
    }
    return numbers;
  }

  // Returns the same from all episodes that were ever appended.
  std::vector<uint64_t> Expected(const ReplayRange& range, bool training, int steps = 1,
                                 uint64_t newest = 0) const {
    std::vector<uint64_t> numbers;
    for (size_t i = 0; i < starts_.size(); ++i) {
      const uint64_t first = starts_[i];
      const uint64_t end = std::min(range.next, i + 1 < starts_.size() ? starts_[i + 1] : next_);
      if (range.first > 0 && first <= range.first) continue;
      if (IsHeldOut(first, kHoldout) == training) continue;
      for (uint64_t row = first; row + static_cast<uint64_t>(steps) <= end; ++row) {
        if (training && newest > 0 && row + newest < range.next) continue;
        numbers.push_back(row);
      }
    }
    return numbers;
  }

  const TempDir folder_;
  std::unique_ptr<ReplayWriter> writer_;
  uint64_t next_ = 0;
  std::vector<float> priorities_;  // One for each transition; 0 for none.
  std::vector<uint64_t> starts_;   // First transitions of all episodes.
  bool ended_ = true;
};

TEST_F(FollowedReplayTest, PrioritiesAreThoseOfTheExamples) {
  std::mt19937 random(6);
  Append(3, true);
  for (const auto& [steps, newest] :
       std::vector<std::pair<int, int64_t>>{{1, 0}, {3, 0}, {2, 20}}) {
    const std::unique_ptr<FollowedReplay> dataset = Open(steps, newest, /*prioritized=*/true);
    Follow(*dataset);
    for (int i = 0; i < 200; ++i) {
      Append(1 + static_cast<int>(random() % 9), random() % 3 != 0);
      if (random() % 3 == 0) continue;
      const ReplayRange before = dataset->range();
      const std::vector<uint64_t> known = Numbers(*dataset, true, steps);
      const int64_t dropped = dataset->dropped();
      Follow(*dataset);
      const std::vector<uint64_t> numbers = Numbers(*dataset, true, steps);
      std::vector<float> expected;
      int64_t kept = 0;
      for (const uint64_t number : numbers) {
        float highest = 0;
        for (int step = 0; step < steps; ++step) {
          highest = std::max(highest, priorities_[number + static_cast<uint64_t>(step)]);
        }
        expected.push_back(highest);
        kept += number + static_cast<uint64_t>(steps) <= before.next ? 1 : 0;
      }
      ASSERT_EQ(dataset->priorities(), expected) << i;
      EXPECT_EQ(dataset->SizeBefore(before.next), kept) << i;
      EXPECT_EQ(dataset->SizeBefore(dataset->range().next), dataset->training_size());
      EXPECT_EQ(dataset->SizeBefore(0), 0);
      // The examples that stayed are the newest of the earlier ones.
      const auto gone =
          std::min<int64_t>(dataset->dropped() - dropped, static_cast<int64_t>(known.size()));
      EXPECT_EQ(static_cast<int64_t>(known.size()) - gone, kept) << i;
    }
  }
}

TEST_F(FollowedReplayTest, ExamplesAreAPureFunctionOfTheRange) {
  std::mt19937 random(5);
  Append(3, true);
  const std::unique_ptr<FollowedReplay> each = Open(), windows = Open(3), newest = Open(2, 20);
  std::map<uint64_t, bool> part;
  for (int i = 0; i < 400; ++i) {
    Append(1 + static_cast<int>(random() % 9), random() % 3 != 0);
    if (random() % 3 == 0) continue;
    for (FollowedReplay* dataset : {each.get(), windows.get(), newest.get()}) Follow(*dataset);
    const ReplayRange range = each->range();
    ASSERT_EQ(range, (ReplayRange{.first = writer_->first(), .next = next_}));
    for (const bool training : {true, false}) {
      ASSERT_EQ(Numbers(*each, training), Expected(range, training)) << i;
      ASSERT_EQ(Numbers(*windows, training, 3), Expected(range, training, 3)) << i;
      ASSERT_EQ(Numbers(*newest, training, 2), Expected(range, training, 2, 20)) << i;
      for (const uint64_t number : Numbers(*each, training)) {
        ASSERT_EQ(part.emplace(number, training).first->second, training) << "it moved";
      }
    }
    // A run that resumes opens the buffer again.
    const std::unique_ptr<FollowedReplay> anew = Open(3);
    Follow(*anew);
    ASSERT_EQ(anew->range(), range);
    ASSERT_EQ(GatherAll(*anew, AllExamples(*anew)), GatherAll(*windows, AllExamples(*windows)));
  }
  EXPECT_GT(part.size(), 300u);
  EXPECT_GT(writer_->first(), 300u) << "nothing was evicted";
}

TEST_F(FollowedReplayTest, LeavesOutWhatWasEvictedBeforeItCouldBeRead) {
  Append(4, true);
  const std::unique_ptr<FollowedReplay> dataset = Open();
  Follow(*dataset);
  while (next_ < 400) Append(5, next_ % 3 == 0);
  Follow(*dataset);
  for (const bool training : {true, false}) {
    EXPECT_EQ(Numbers(*dataset, training), Expected(dataset->range(), training));
  }
}

TEST_F(FollowedReplayTest, ExamplesStayUntilTheRangeIsTaken) {
  while (next_ < 40) Append(4, true);
  const std::unique_ptr<FollowedReplay> dataset = Open();
  Follow(*dataset);
  const auto before = GatherAll(*dataset, AllExamples(*dataset));
  while (next_ < 200) {
    Append(4, true);
    ASSERT_TRUE(dataset->Look().ok());
  }
  EXPECT_EQ(GatherAll(*dataset, AllExamples(*dataset)), before) << "files were evicted";
}

TEST_F(FollowedReplayTest, StatisticsAreOfTheTrainingPartAndStay) {
  while (next_ < 40) Append(4, true);
  const std::unique_ptr<FollowedReplay> dataset = Open();
  Follow(*dataset);
  ASSERT_TRUE(dataset->FixStatistics().ok());
  double sum = 0;
  const std::vector<uint64_t> trained = Numbers(*dataset, true);
  for (const uint64_t number : trained) sum += static_cast<double>(number);
  const float mean = static_cast<float>(sum / static_cast<double>(trained.size()));
  EXPECT_THAT(dataset->statistics().at("reward").mean, ElementsAre(mean));
  Append(4, true);
  Follow(*dataset);
  EXPECT_THAT(dataset->statistics().at("reward").mean, ElementsAre(mean));
}

TEST_F(FollowedReplayTest, ADifferenceThatIsNotFiniteIsRefusedWithItsPlace) {
  constexpr float kLargest = std::numeric_limits<float>::max();
  ASSERT_TRUE(AppendTo(*writer_, "wide",
                       std::vector<ReplayTransition>(8, {.observation = {0, -kLargest},
                                                         .action = {0},
                                                         .next_observation = {0, kLargest},
                                                         .terminal = true,
                                                         .priority = {}}))
                  .ok());
  const std::unique_ptr<FollowedReplay> dataset = Open();
  Follow(*dataset);
  ASSERT_GE(dataset->training_size(), 1);
  EXPECT_THAT(std::string(dataset->FixStatistics().message()),
              HasSubstr("observation[1] is -3.40282e+38 and next_observation[1] is "
                        "3.40282e+38; their difference must be a finite float32"));
}

TEST(FollowedSamplerTest, ABatchDependsOnSeedPositionAndSizeAlone) {
  FollowedSampler sampler(4, 7, /*newest=*/false);
  std::set<int64_t> drawn;
  for (uint64_t batch = 0; batch < 100; ++batch) {
    SplitMix64 random(7, batch);
    std::vector<int64_t> expected;
    for (int k = 0; k < 4; ++k) expected.push_back(static_cast<int64_t>(random.Below(10)));
    EXPECT_EQ(sampler.Draw(10), expected);
    drawn.insert(expected.begin(), expected.end());
    sampler.Advance();
  }
  EXPECT_EQ(drawn.size(), 10u);
  sampler.Seek({.epoch = 0, .batch = 3});
  FollowedSampler other(4, 7, /*newest=*/false);
  other.Seek({.epoch = 0, .batch = 3});
  EXPECT_EQ(sampler.Draw(1000), other.Draw(1000));
}

TEST(FollowedSamplerTest, NewestTakesTheLastExamples) {
  const FollowedSampler sampler(3, 7, /*newest=*/true);
  EXPECT_THAT(sampler.Draw(10), ElementsAre(9, 8, 7));
  EXPECT_THAT(sampler.Draw(2), ElementsAre(1, 0, 1));
}

}  // namespace
}  // namespace genesis
