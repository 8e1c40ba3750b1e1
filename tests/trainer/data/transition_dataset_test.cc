#include "trainer/data/transition_dataset.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>

#include "tests/temp_dir.h"
#include "tests/trainer/data_files.h"
#include "tests/trainer/npz_writer.h"

namespace genesis {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using training::v1::JobSpec;
using Records = std::map<std::string, std::string>;

JobSpec Job(const std::string& path, int rollout_steps = 1, double holdout_fraction = 0.25) {
  JobSpec spec = WorldModelJob(rollout_steps);
  spec.mutable_dataset()->mutable_trajectories()->set_path(path);
  spec.mutable_dataset()->mutable_trajectories()->set_holdout_fraction(holdout_fraction);
  return spec;
}

std::vector<float> Values(const Dataset& dataset, const std::vector<int64_t>& examples,
                          const std::string& field) {
  return FieldValues<float>(dataset, examples, field);
}

// Returns the elements of a float32 array of SpiralRecords.
std::vector<float> Elements(const Records& records, const std::string& name) {
  const std::string& npy = records.at(name + ".npy");
  const size_t begin = npy.find('\n') + 1;
  std::vector<float> values((npy.size() - begin) / sizeof(float));
  std::memcpy(values.data(), npy.data() + begin, npy.size() - begin);
  return values;
}

// Returns mean and deviation of one column, summed in double row by row.
std::pair<float, float> Column(const std::vector<float>& values, size_t column, size_t columns,
                               size_t rows) {
  double sum = 0;
  for (size_t row = 0; row < rows; ++row) sum += values[row * columns + column];
  const double mean = sum / static_cast<double>(rows);
  double squares = 0;
  for (size_t row = 0; row < rows; ++row) {
    const double off = values[row * columns + column] - mean;
    squares += off * off;
  }
  return {static_cast<float>(mean),
          static_cast<float>(std::sqrt(squares / static_cast<double>(rows)))};
}

TEST(TransitionDatasetTest, GivesTheNumbersOfTheFileToTheBit) {
  const TempDir folder;
  const Records records = SpiralRecords(8, 32);
  folder.Write("a.npz", ZipBytes(records));
  const auto opened = OpenDataset(Job(folder.path() + "/a.npz"));
  ASSERT_TRUE(opened.ok()) << opened.status();
  const Dataset& dataset = **opened;
  EXPECT_EQ(dataset.size(), 256);
  EXPECT_EQ(dataset.training_size(), 192);
  std::map<std::string, std::vector<float>> expected = {
      {"observation", Elements(records, "observations")},
      {"action", Elements(records, "actions")},
      {"reward", Elements(records, "rewards")},
      {"next_observation", Elements(records, "next_observations")}};
  for (size_t i = 0; i < 512; ++i) {
    expected["change"].push_back(expected["next_observation"][i] - expected["observation"][i]);
  }
  for (const auto& [name, values] : expected) {
    if (name != "next_observation") {
      EXPECT_EQ(Values(dataset, AllExamples(dataset), name), values) << name;
    }
    const size_t columns = values.size() / 256;
    const ColumnStatistics& statistics = dataset.statistics().at(name);
    ASSERT_EQ(statistics.mean.size(), columns);
    for (size_t column = 0; column < columns; ++column) {
      const auto [mean, deviation] = Column(values, column, columns, 192);
      EXPECT_EQ(statistics.mean[column], mean) << name;
      EXPECT_EQ(statistics.deviation[column], deviation) << name;
    }
  }
  const std::vector<float> done = Values(dataset, AllExamples(dataset), "done");
  for (size_t i = 0; i < done.size(); ++i) {
    EXPECT_EQ(done[i], i % 64 == 31 ? 1.0f : 0.0f) << i;
  }
}

TEST(TransitionDatasetTest, CutsWindowsInsideEpisodes) {
  const TempDir folder;
  Records records = SpiralRecords(4, 3);
  std::vector<float> rewards(12);
  for (size_t i = 0; i < rewards.size(); ++i) rewards[i] = static_cast<float>(i);
  records["rewards.npy"] = NpyBytes("<f4", "(12,)", RawBytes(rewards));
  folder.Write("a.npz", ZipBytes(records));
  const auto dataset = OpenDataset(Job(folder.path() + "/a.npz", 2));
  ASSERT_TRUE(dataset.ok()) << dataset.status();
  // Two windows in each of four episodes. No window crosses the end of an episode.
  EXPECT_EQ((*dataset)->size(), 8);
  EXPECT_EQ((*dataset)->training_size(), 6);
  EXPECT_THAT((*dataset)->fields()[0].shape, ElementsAre(2, 2));
  EXPECT_THAT((*dataset)->fields()[3].shape, ElementsAre(2, 1));
  EXPECT_THAT(Values(**dataset, {0, 1, 2, 7}, "reward"), ElementsAre(0, 1, 1, 2, 3, 4, 10, 11));
  EXPECT_EQ((*dataset)->Describe(),
            "6 windows of 2 steps of 3 episodes to train on, 2 of 1 held out");
}

TEST(TransitionDatasetTest, RefusesWindowsLongerThanEveryEpisode) {
  const TempDir folder;
  folder.Write("a.npz", ZipBytes(SpiralRecords(4, 3)));
  const auto dataset = OpenDataset(Job(folder.path() + "/a.npz", 4));
  EXPECT_EQ(dataset.status().message(),
            "a.npz: no episode to train on has model.world_model.rollout_steps = 4 steps, the "
            "longest has 3; accepted: 1 to 3");
}

}  // namespace
}  // namespace genesis
