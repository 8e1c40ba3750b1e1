#include "trainer/data/array_transitions.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "tests/temp_dir.h"
#include "tests/trainer/data_files.h"
#include "tests/trainer/npz_writer.h"

namespace genesis {
namespace {

using testing::EndsWith;
using testing::HasSubstr;
using Records = std::map<std::string, std::string>;

absl::StatusOr<std::unique_ptr<Dataset>> Load(const Records& records,
                                              double holdout_fraction = 0.1) {
  const TempDir folder;
  folder.Write("pendulum.npz", ZipBytes(records));
  training::v1::JobSpec spec = WorldModelJob();
  spec.mutable_dataset()->mutable_trajectories()->set_path(folder.path() + "/pendulum.npz");
  spec.mutable_dataset()->mutable_trajectories()->set_holdout_fraction(holdout_fraction);
  return OpenDataset(spec);
}

std::string Fault(const Records& records) { return std::string(Load(records).status().message()); }

// Overwrites element `index` of a float32 array.
void SetFloat(std::string& npy, size_t index, float value) {
  const size_t begin = npy.find('\n') + 1;
  npy.replace(begin + index * sizeof(float), sizeof(float), RawBytes<float>({value}));
}

TEST(ArrayTransitionsTest, HoldsOutWholeEpisodesFromTheEnd) {
  const auto dataset = Load(SpiralRecords(8, 32), 0.25);
  ASSERT_TRUE(dataset.ok()) << dataset.status();
  EXPECT_EQ((*dataset)->size(), 256);
  EXPECT_EQ((*dataset)->training_size(), 192);
  EXPECT_EQ((*dataset)->Describe(), "192 transitions of 6 episodes to train on, 64 of 2 held out");
  EXPECT_THAT((*dataset)->fields()[0].shape, testing::ElementsAre(2));
  EXPECT_THAT((*dataset)->fields()[1].shape, testing::ElementsAre(1));
}

TEST(ArrayTransitionsTest, HoldsOutAtLeastOneEpisodeAndKeepsOne) {
  EXPECT_EQ((*Load(SpiralRecords(3, 10), 0.01))->training_size(), 20);
  EXPECT_EQ((*Load(SpiralRecords(2, 10), 0.5))->training_size(), 10);
}

TEST(ArrayTransitionsTest, NamesTheElementThatIsNotFinite) {
  Records records = SpiralRecords(8, 32);
  SetFloat(records["observations.npy"], 2 * 234 + 1, std::nanf(""));
  EXPECT_EQ(Fault(records),
            "pendulum.npz: observations[234, 1] is nan (episode 7, step 10); every value must be "
            "finite; remove that episode or repair the recording");
  records = SpiralRecords(8, 32);
  SetFloat(records["rewards.npy"], 33, -std::numeric_limits<float>::infinity());
  EXPECT_THAT(Fault(records), HasSubstr("rewards[33] is -inf (episode 1, step 1)"));
}

TEST(ArrayTransitionsTest, RefusesShapesThatDisagree) {
  Records records = SpiralRecords(2, 4);
  records["rewards.npy"] = NpyBytes("<f4", "(7,)", RawBytes(std::vector<float>(7)));
  EXPECT_EQ(Fault(records),
            "pendulum.npz: rewards has shape (7,); accepted, because observations has shape (8, "
            "2): (8,)");
  records = SpiralRecords(2, 4);
  records["observations.npy"] = NpyBytes("<f4", "(16,)", RawBytes(std::vector<float>(16)));
  EXPECT_THAT(Fault(records), HasSubstr("observations has shape (16,); accepted: (transitions"));
}

TEST(ArrayTransitionsTest, RefusesASingleEpisode) {
  EXPECT_THAT(Fault(SpiralRecords(1, 8)), HasSubstr("has 1 episode; accepted: at least 2"));
}

TEST(ArrayTransitionsTest, RefusesTypesThatMeanSomethingElse) {
  Records records = SpiralRecords(2, 4);
  records["terminals.npy"] = NpyBytes("<f4", "(8,)", RawBytes(std::vector<float>(8)));
  EXPECT_THAT(Fault(records), HasSubstr("terminals is float32; accepted: bool or uint8"));
}

TEST(ArrayTransitionsTest, NamesAMissingArray) {
  Records records = SpiralRecords(2, 4);
  records.erase("timeouts.npy");
  EXPECT_THAT(Fault(records), HasSubstr("has no array \"timeouts\", which is the member "
                                        "\"timeouts.npy\"; it has the members: \"actions.npy\""));
}

TEST(ArrayTransitionsTest, MakesIntegerActionsOneHot) {
  Records records = SpiralRecords(2, 2);
  records["actions.npy"] = NpyBytes("<i8", "(4,)", RawBytes<int64_t>({0, 2, 1, 2}));
  const auto dataset = Load(records);
  ASSERT_TRUE(dataset.ok()) << dataset.status();
  EXPECT_THAT(FieldValues<float>(**dataset, {0, 1, 2, 3}, "action"),
              testing::ElementsAre(1, 0, 0, 0, 0, 1, 0, 1, 0, 0, 0, 1));
  records["actions.npy"] = NpyBytes("<i8", "(4,)", RawBytes<int64_t>({0, -1, 1, 2}));
  EXPECT_THAT(Fault(records),
              EndsWith("actions[1] is -1; accepted for integer actions: 0 to 1023"));
}

TEST(ArrayTransitionsTest, TakesStatisticsFromTheTrainingPartOnly) {
  Records records = SpiralRecords(2, 2);
  const std::vector<float> values = {1, 5, 3, 5, 100, 7, 100, 7};
  records["observations.npy"] = NpyBytes("<f4", "(4, 2)", RawBytes(values));
  const auto dataset = Load(records, 0.5);
  ASSERT_TRUE(dataset.ok()) << dataset.status();
  const ColumnStatistics& statistics = (*dataset)->statistics().at("observation");
  EXPECT_THAT(statistics.mean, testing::ElementsAre(2, 5));
  // The second column is constant.
  EXPECT_THAT(statistics.deviation, testing::ElementsAre(1, 1));
}

class StatisticsOfUnits : public testing::TestWithParam<int> {};
INSTANTIATE_TEST_SUITE_P(Exponents, StatisticsOfUnits,
                         testing::Values(-80, -27, -14, 0, 9, 27, 60));

// Two columns vary, one counts up, and one is constant except for rounding.
TEST_P(StatisticsOfUnits, AreTheSameInEveryUnit) {
  const auto load = [](int exponent) {
    Records records = SpiralRecords(4, 8);
    std::vector<float> now;
    std::vector<float> next;
    for (int row = 0; row < 32; ++row) {
      const auto add = [&](std::vector<float>& to, int at) {
        const float wave = std::sin(static_cast<float>(at));
        const float still = at % 2 == 0 ? 3 : std::nextafterf(3, 4);
        for (const float value : {wave, 1e4f + wave, static_cast<float>(at), still}) {
          to.push_back(std::ldexp(value, exponent));
        }
      };
      add(now, row);
      add(next, row + 1);
    }
    records["observations.npy"] = NpyBytes("<f4", "(32, 4)", RawBytes(now));
    records["next_observations.npy"] = NpyBytes("<f4", "(32, 4)", RawBytes(next));
    return *Load(records, 0.25);
  };
  const auto plain = load(0);
  const auto scaled = load(GetParam());
  for (const char* field : {"observation", "change", "next_observation"}) {
    const ColumnStatistics& one = plain->statistics().at(field);
    const ColumnStatistics& other = scaled->statistics().at(field);
    EXPECT_EQ(one.constant, other.constant) << field;
    for (size_t i = 0; i < one.deviation.size(); ++i) {
      EXPECT_EQ(std::ldexp(one.mean[i], GetParam()), other.mean[i]) << field << i;
      const bool stands = i == 3;
      EXPECT_EQ(std::ldexp(one.deviation[i], stands ? 0 : GetParam()), other.deviation[i])
          << field << i;
    }
  }
  EXPECT_THAT(plain->statistics().at("observation").constant, testing::ElementsAre(3));
  EXPECT_THAT(plain->statistics().at("change").constant, testing::ElementsAre(2, 3));
  EXPECT_EQ(plain->statistics().at("change").deviation[2],
            plain->statistics().at("observation").deviation[2]);
  EXPECT_THAT(scaled->Describe(),
              EndsWith("; constant and not normalised: observation[3]; change is constant up to "
                       "rounding of float32: observation[2] (a large offset hides changes: "
                       "subtract it)"));
}

TEST(ArrayTransitionsTest, ANumberBesideALargeOneIsNoRounding) {
  // Neighboring values differ by 16 float32 units in the last place.
  Records records = SpiralRecords(2, 2);
  records["observations.npy"] =
      NpyBytes("<f4", "(4, 2)", RawBytes(std::vector<float>{1e6f, 1, 1e6f + 1, 2, 0, 3, 0, 4}));
  const auto dataset = Load(records, 0.5);
  ASSERT_TRUE(dataset.ok()) << dataset.status();
  EXPECT_THAT((*dataset)->statistics().at("observation").deviation, testing::ElementsAre(0.5, 0.5));
  EXPECT_THAT((*dataset)->statistics().at("observation").constant, testing::IsEmpty());
}

}  // namespace
}  // namespace genesis
