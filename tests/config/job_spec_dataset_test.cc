#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <limits>

#include "base/text/message_limits.h"
#include "config/job/job_sections.h"
#include "google/protobuf/util/message_differencer.h"

namespace genesis {
namespace {

using google::protobuf::util::MessageDifferencer;
using testing::ElementsAre;
using testing::IsEmpty;
using training::v1::DatasetSpec;
using training::v1::JobSpec;

using Change = std::function<void(DatasetSpec&)>;

JobSpec With(const Change& change) {
  JobSpec spec;
  change(*spec.mutable_dataset());
  return spec;
}

std::vector<std::string> DatasetFaults(const JobSpec& spec) {
  Faults faults(CheckEnums(spec));
  CheckDataset(spec, faults);
  std::vector<std::string> texts;
  for (const FieldError& error : faults.Take()) texts.push_back(error.ToString());
  return texts;
}

std::vector<std::string> FaultsAfter(const Change& change) { return DatasetFaults(With(change)); }

DatasetSpec Filled(const Change& change) {
  JobSpec spec = With(change);
  spec.mutable_model()->mutable_transformer()->set_vocabulary_size(500);
  FillDataset(spec);
  JobSpec again = spec;
  FillDataset(again);
  EXPECT_TRUE(MessageDifferencer::Equals(spec, again));
  EXPECT_THAT(DatasetFaults(spec), IsEmpty());
  return spec.dataset();
}

// The smallest specification of each kind of dataset.
const std::pair<const char*, Change>* const kKinds = new std::pair<const char*, Change>[] {
  {"trajectories", [](DatasetSpec& d) { d.mutable_trajectories()->set_path("a.npz"); }},
      {"replay", [](DatasetSpec& d) { d.mutable_replay()->set_path("robots/arm"); }},
      {"tokens", [](DatasetSpec& d) { d.mutable_tokens()->set_path("a.bin"); }},
      {"arrays", [](DatasetSpec& d) { d.mutable_arrays()->set_path("a.npy"); }},
      {"made trajectories", [](DatasetSpec& d) { d.mutable_synthetic()->mutable_trajectories(); }},
      {"made tokens", [](DatasetSpec& d) { d.mutable_synthetic()->mutable_tokens(); }}, {
    "made maps", [](DatasetSpec& d) { d.mutable_synthetic()->mutable_maps(); }
  }
};
constexpr size_t kKindCount = 7;

TEST(DatasetDefaultsTest, AreThoseOfTheProtocol) {
  for (size_t i = 0; i < kKindCount; ++i) {
    const DatasetSpec data = Filled(kKinds[i].second);
    EXPECT_EQ(data.memory_limit_bytes(), 1073741824) << kKinds[i].first;
    EXPECT_EQ(data.sampling().kind(), training::v1::SAMPLING_KIND_UNIFORM);
    EXPECT_EQ(data.sampling().priority_exponent(), 0);
    EXPECT_EQ(data.sampling().importance_exponent(), 0);
  }
  EXPECT_EQ(Filled(kKinds[0].second).trajectories().holdout_fraction(), 0.1);
  EXPECT_EQ(Filled(kKinds[1].second).replay().holdout_fraction(), 0.1);
  EXPECT_EQ(Filled(kKinds[2].second).tokens().holdout_fraction(), 0.1);
  EXPECT_EQ(Filled(kKinds[2].second).tokens().type(), training::v1::TOKEN_TYPE_UINT16);
  EXPECT_EQ(Filled(kKinds[3].second).arrays().holdout_fraction(), 0.1);
  const auto trajectories = Filled(kKinds[4].second).synthetic();
  EXPECT_EQ(trajectories.holdout_fraction(), 0.1);
  EXPECT_EQ(trajectories.trajectories().episodes(), 256);
  EXPECT_EQ(trajectories.trajectories().episode_length(), 64);
  EXPECT_EQ(trajectories.trajectories().observation_size(), 16);
  EXPECT_EQ(trajectories.trajectories().action_size(), 4);
  const auto tokens = Filled(kKinds[5].second).synthetic().tokens();
  EXPECT_EQ(tokens.size(), 1048576);
  EXPECT_EQ(tokens.vocabulary_size(), 500);
  const auto maps = Filled(kKinds[6].second).synthetic().maps();
  EXPECT_EQ(maps.maps(), 256);
  EXPECT_EQ(maps.size(), 64);
}

TEST(DatasetDefaultsTest, GiveExponentsToPrioritizedSamplingOnly) {
  const DatasetSpec data = Filled([](DatasetSpec& d) {
    d.mutable_replay()->set_path("arm");
    d.mutable_sampling()->set_kind(training::v1::SAMPLING_KIND_PRIORITIZED);
  });
  EXPECT_EQ(data.sampling().priority_exponent(), 0.6);
  EXPECT_EQ(data.sampling().importance_exponent(), 0.4);
}

TEST(DatasetDefaultsTest, InventNoDataset) {
  JobSpec spec;
  FillDataset(spec);
  EXPECT_FALSE(spec.has_dataset());
}

TEST(DatasetValidationTest, AcceptsEveryKindWithoutDefaults) {
  for (size_t i = 0; i < kKindCount; ++i) {
    EXPECT_THAT(FaultsAfter(kKinds[i].second), IsEmpty()) << kKinds[i].first;
  }
}

TEST(DatasetValidationTest, RefusesValuesOutOfRange) {
  const std::tuple<Change, std::string> rows[] = {
      {[](DatasetSpec& d) { d.mutable_replay(); },
       "dataset.replay.path: required; give the path of the folder of a replay buffer below the "
       "dataset root"},
      {[](DatasetSpec& d) { d.mutable_replay()->set_path("../arm"); },
       "dataset.replay.path is \"../arm\"; accepted: a path without \"..\"; it may not leave the "
       "dataset root"},
      {[](DatasetSpec& d) { d.mutable_tokens()->set_path("a.txt"); },
       "dataset.tokens.path is \"a.txt\"; accepted: a path that ends in .bin or .tokens"},
      {[](DatasetSpec& d) {
         d.mutable_tokens()->set_path("a.bin");
         d.mutable_tokens()->set_type(static_cast<training::v1::TokenType>(7));
       },
       "dataset.tokens.type is 7; accepted: UINT16, UINT32"},
      {[](DatasetSpec& d) { d.mutable_arrays()->set_path("a.jsonl"); },
       "dataset.arrays.path is \"a.jsonl\"; accepted: a path that ends in .npz or .safetensors or "
       ".npy"},
      {[](DatasetSpec& d) {
         d.mutable_arrays()->set_path("a.npz");
         d.mutable_arrays()->set_holdout_fraction(-0.1);
       },
       "dataset.arrays.holdout_fraction is -0.1; accepted: above 0, at most 0.5"},
      {[](DatasetSpec& d) { d.mutable_synthetic(); },
       "dataset.synthetic: required; give it one kind of data: trajectories, tokens or maps"},
      {[](DatasetSpec& d) { d.mutable_synthetic()->mutable_trajectories()->set_episodes(1); },
       "dataset.synthetic.trajectories.episodes is 1; accepted: 2 to 10000000"},
      {[](DatasetSpec& d) {
         d.mutable_synthetic()->mutable_trajectories()->set_observation_size(65537);
       },
       "dataset.synthetic.trajectories.observation_size is 65537; accepted: 1 to 65536"},
      {[](DatasetSpec& d) { d.mutable_synthetic()->mutable_tokens()->set_size(1023); },
       "dataset.synthetic.tokens.size is 1023; accepted: 1024 to 1000000000000"},
      {[](DatasetSpec& d) { d.mutable_synthetic()->mutable_maps()->set_size(48); },
       "dataset.synthetic.maps.size is 48; accepted: a power of two from 8 to 1024"},
      {[](DatasetSpec& d) {
         d.mutable_replay()->set_path("arm");
         d.set_memory_limit_bytes(1048575);
       },
       "dataset.memory_limit_bytes is 1048575; accepted: >= 1048576"},
      {[](DatasetSpec& d) {
         d.mutable_replay()->set_path("arm");
         d.mutable_sampling()->set_kind(static_cast<training::v1::SamplingKind>(9));
       },
       "dataset.sampling.kind is 9; accepted: UNIFORM, PRIORITIZED, NEWEST"},
      {[](DatasetSpec& d) {
         d.mutable_replay()->set_path("arm");
         d.mutable_sampling()->set_kind(training::v1::SAMPLING_KIND_PRIORITIZED);
         d.mutable_sampling()->set_priority_exponent(1.5);
       },
       "dataset.sampling.priority_exponent is 1.5; accepted: above 0, at most 1"},
      {[](DatasetSpec& d) {
         d.mutable_replay()->set_path("arm");
         d.mutable_sampling()->set_importance_exponent(0.5);
       },
       "dataset.sampling.importance_exponent: 0.5 conflicts with dataset.sampling.kind UNIFORM, "
       "which has no exponents; remove one of the two"},
      {[](DatasetSpec& d) {
         d.mutable_trajectories()->set_path("a.npz");
         d.mutable_sampling()->set_kind(training::v1::SAMPLING_KIND_PRIORITIZED);
       },
       "dataset.sampling.kind: PRIORITIZED needs data with priorities; use dataset.replay, or "
       "UNIFORM"},
      {[](DatasetSpec& d) {
         d.mutable_trajectories()->set_path("a.npz");
         d.mutable_sampling()->set_kind(training::v1::SAMPLING_KIND_NEWEST);
       },
       "dataset.sampling.kind: NEWEST needs data that grows; use dataset.replay with follow: true, "
       "or UNIFORM"},
      {[](DatasetSpec& d) {
         d.mutable_replay()->set_path("arm");
         d.mutable_sampling()->set_kind(training::v1::SAMPLING_KIND_NEWEST);
       },
       "dataset.sampling.kind: NEWEST needs dataset.replay.follow; give follow: true, or UNIFORM"},
      {[](DatasetSpec& d) {
         d.mutable_replay()->set_path("arm");
         d.mutable_replay()->set_idle_seconds(2.5);
       },
       "dataset.replay.idle_seconds: 2.5 needs dataset.replay.follow; give follow: true, or remove "
       "it"},
      {[](DatasetSpec& d) {
         d.mutable_replay()->set_path("arm");
         d.mutable_replay()->set_follow(true);
         d.mutable_replay()->set_min_size(-1);
       },
       "dataset.replay.min_size is -1; accepted: 1 to 1000000000000, or 0 for one batch"},
      {[](DatasetSpec& d) {
         d.mutable_replay()->set_path("arm");
         d.mutable_replay()->set_follow(true);
         d.mutable_replay()->set_samples_per_insert_tolerance(8);
       },
       "dataset.replay.samples_per_insert_tolerance: 8 needs dataset.replay.samples_per_insert; "
       "give "
       "one, or remove it"}};
  for (const auto& [change, message] : rows) {
    EXPECT_THAT(FaultsAfter(change), ElementsAre(message));
  }
}

TEST(DatasetValidationTest, RefusesEpisodesShorterThanARollout) {
  JobSpec spec = With(
      [](DatasetSpec& d) { d.mutable_synthetic()->mutable_trajectories()->set_episode_length(3); });
  spec.mutable_model()->mutable_world_model()->set_rollout_steps(4);
  EXPECT_THAT(DatasetFaults(spec),
              ElementsAre("dataset.synthetic.trajectories.episode_length is 3; accepted: at least "
                          "model.world_model.rollout_steps, 4"));
}

TEST(DatasetValidationTest, RefusesNanAndInfinity) {
  for (const double bad : {std::nan(""), std::numeric_limits<double>::infinity()}) {
    EXPECT_EQ(FaultsAfter([bad](DatasetSpec& d) {
                d.mutable_replay()->set_path("arm");
                d.mutable_replay()->set_holdout_fraction(bad);
                d.mutable_sampling()->set_kind(training::v1::SAMPLING_KIND_PRIORITIZED);
                d.mutable_sampling()->set_priority_exponent(bad);
                d.mutable_sampling()->set_importance_exponent(bad);
              }).size(),
              3u);
  }
}

TEST(DatasetValidationTest, AJobThatFollowsKeepsTheTransitionsOfABatch) {
  JobSpec spec = With([](DatasetSpec& d) {
    d.mutable_replay()->set_path("arm");
    d.mutable_replay()->set_follow(true);
    d.mutable_replay()->set_newest_transitions(10);
  });
  spec.mutable_training()->set_batch_size(10);
  EXPECT_THAT(DatasetFaults(spec), ElementsAre());
  spec.mutable_training()->set_batch_size(11);
  EXPECT_THAT(DatasetFaults(spec),
              ElementsAre("dataset.replay.newest_transitions: 10 conflicts with "
                          "training.batch_size 11; keep the transitions of at least one batch"));
}

TEST(DatasetValidationTest, AJobThatFollowsHasNoEpochs) {
  JobSpec spec = With([](DatasetSpec& d) {
    d.mutable_replay()->set_path("arm");
    d.mutable_replay()->set_follow(true);
  });
  spec.mutable_training()->set_epochs(3);
  EXPECT_THAT(DatasetFaults(spec),
              ElementsAre("training.epochs: 3 conflicts with dataset.replay.follow, which has no "
                          "epochs; give training.max_steps (up to 1000000000000)"));
}

}  // namespace
}  // namespace genesis
