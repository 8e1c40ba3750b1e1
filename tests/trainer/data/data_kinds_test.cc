// Tests of the examples that each kind of valid data gives.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <set>

#include "absl/strings/str_cat.h"
#include "config/job/job_spec.h"
#include "replay/replay_writer.h"
#include "tests/replay/transitions.h"
#include "tests/temp_dir.h"
#include "tests/trainer/data_files.h"
#include "tests/trainer/npz_writer.h"
#include "trainer/data/portable_math.h"
#include "trainer/formats/safetensors.h"

namespace genesis {
namespace {

using testing::ElementsAre;
using training::v1::JobSpec;

std::unique_ptr<Dataset> Open(const JobSpec& spec) {
  auto dataset = OpenDataset(WithDefaults(spec, LossScaleSettings()));
  EXPECT_TRUE(dataset.ok()) << dataset.status();
  return dataset.ok() ? *std::move(dataset) : nullptr;
}

std::unique_ptr<Dataset> OpenTrajectories(const std::string& path, int rollout_steps = 1,
                                          int64_t memory_limit_bytes = 0) {
  JobSpec spec = WorldModelJob(rollout_steps);
  spec.mutable_dataset()->mutable_trajectories()->set_path(path);
  spec.mutable_dataset()->set_memory_limit_bytes(memory_limit_bytes);
  return Open(spec);
}

void ExpectSame(const Dataset& left, const Dataset& right) {
  ASSERT_EQ(left.size(), right.size());
  EXPECT_EQ(left.training_size(), right.training_size());
  EXPECT_EQ(GatherAll(left, AllExamples(left)), GatherAll(right, AllExamples(right)));
  ASSERT_EQ(left.statistics().size(), right.statistics().size());
  for (const auto& [name, statistics] : left.statistics()) {
    EXPECT_EQ(statistics.mean, right.statistics().at(name).mean) << name;
    EXPECT_EQ(statistics.deviation, right.statistics().at(name).deviation) << name;
  }
}

void AppendSpirals(const std::string& folder, int episodes, int length) {
  const TempDir files;
  files.Write("a.npz", ZipBytes(SpiralRecords(episodes, length)));
  const auto dataset = OpenTrajectories(files.path() + "/a.npz");
  const std::vector<int64_t> all = AllExamples(*dataset);
  const auto observations = FieldValues<float>(*dataset, all, "observation");
  const auto actions = FieldValues<float>(*dataset, all, "action");
  const auto rewards = FieldValues<float>(*dataset, all, "reward");
  auto writer = ReplayWriter::Open(folder, {.layout = kLayout, .segment_transitions = 40});
  ASSERT_TRUE(writer.ok()) << writer.status();
  std::vector<ReplayTransition> batch;
  for (size_t i = 0; i < all.size(); ++i) {
    const bool last = (i + 1) % static_cast<size_t>(length) == 0;
    const bool even = i / static_cast<size_t>(length) % 2 == 0;
    batch.push_back({.observation = {observations[2 * i], observations[2 * i + 1]},
                     .action = {actions[i]},
                     .next_observation = {},
                     .reward = rewards[i],
                     .terminal = last && even,
                     .timeout = last && !even,
                     .priority = {}});
    // This is the formula of SpiralRecords.
    const float x = observations[2 * i], y = observations[2 * i + 1];
    batch.back().next_observation = {0.98f * x - 0.1f * y + 0.05f * actions[i],
                                     0.1f * x + 0.98f * y};
    if (batch.size() == 7 || i + 1 == all.size()) {
      ASSERT_TRUE(AppendTo(**writer, absl::StrCat("to ", i), batch).ok());
      batch.clear();
    }
  }
}

TEST(DataKindsTest, TransitionsAreTheSameWhateverFileHoldsThem) {
  const TempDir folder;
  const std::string at = folder.path() + "/";
  folder.Write("a.npz", ZipBytes(SpiralRecords(8, 32)));
  folder.Write("packed.npz", ZipBytes(SpiralRecords(8, 32), /*deflate=*/true));
  folder.Write("a.safetensors", SafetensorsBytes(SpiralTensors(8, 32)));
  folder.Write("a.jsonl", SpiralLines(8, 32));
  AppendSpirals(at + "replay", 8, 32);
  for (const int steps : {1, 5}) {
    const auto npz = OpenTrajectories(at + "a.npz", steps);
    for (const char* name : {"packed.npz", "a.safetensors", "a.jsonl"}) {
      SCOPED_TRACE(name);
      ExpectSame(*npz, *OpenTrajectories(at + name, steps));
    }
    JobSpec spec = WorldModelJob(steps);
    spec.mutable_dataset()->mutable_replay()->set_path(at + "replay");
    ExpectSame(*npz, *Open(spec));
  }
}

TEST(DataKindsTest, ReplayTellsItsSegmentsAndPriorities) {
  const TempDir folder;
  AppendSpirals(folder.path() + "/buffer", 4, 16);
  auto writer =
      ReplayWriter::Open(folder.path() + "/buffer", {.layout = kLayout, .segment_transitions = 40});
  std::vector<ReplayTransition> batch;
  for (const float priority : {0.5f, 8.0f, 2.0f}) {
    batch.push_back({.observation = {1, 2},
                     .action = {0},
                     .next_observation = {1, 2},
                     .timeout = priority == 2.0f,
                     .priority = priority});
  }
  ASSERT_TRUE(AppendTo(**writer, "with priorities", batch).ok());
  batch.resize(1);
  batch[0].timeout = true;
  ASSERT_TRUE(AppendTo(**writer, "held out", batch).ok());
  JobSpec spec = WorldModelJob();
  spec.mutable_dataset()->mutable_replay()->set_path(folder.path() + "/buffer/");
  const auto dataset = Open(spec);
  EXPECT_EQ(dataset->Describe(),
            "67 transitions of 5 episodes to train on, 1 of 1 held out; 2 segments, transitions 0 "
            "to 67");
  ASSERT_EQ(dataset->priorities().size(), 67u);
  // Transitions without a priority get the highest priority.
  EXPECT_EQ(dataset->priorities()[0], 8.0f);
  EXPECT_EQ(dataset->priorities()[64], 0.5f);
  EXPECT_EQ(dataset->priorities()[66], 2.0f);
}

TEST(DataKindsTest, JsonlMakesWholeNumberActionsOneHot) {
  const TempDir folder;
  std::string lines;
  for (const char* action : {"0", "2", "1", "2"}) {
    absl::StrAppend(
        &lines, "{\"action\": ", action,
        ", \"observation\": 1.5, \"next_observation\": [2], \"reward\": -1e-3, "
        "\"terminal\": 1, \"timeout\": false, \"info\": {\"a\": [null, \"\\u00e9\"]}}\n");
  }
  folder.Write("a.jsonl", lines);
  const auto dataset = OpenTrajectories(folder.path() + "/a.jsonl");
  EXPECT_THAT(FieldValues<float>(*dataset, {0, 1, 2}, "action"),
              ElementsAre(1, 0, 0, 0, 0, 1, 0, 1, 0));
  EXPECT_THAT(FieldValues<float>(*dataset, {3}, "change"), ElementsAre(0.5f));
  EXPECT_THAT(FieldValues<float>(*dataset, {3}, "reward"), ElementsAre(-1e-3f));
  EXPECT_THAT(FieldValues<float>(*dataset, {3}, "done"), ElementsAre(1));
}

TEST(DataKindsTest, CutsTokensIntoExamples) {
  const TempDir folder;
  std::vector<uint16_t> narrow(32);
  std::vector<uint32_t> wide(32);
  for (size_t i = 0; i < wide.size(); ++i) {
    wide[i] = static_cast<uint32_t>(3 * i);
    narrow[i] = static_cast<uint16_t>(3 * i);
  }
  folder.Write("narrow.bin", RawBytes(narrow));
  folder.Write("wide.tokens", RawBytes(wide));
  for (const bool is_wide : {false, true}) {
    JobSpec spec = TransformerJob(94, 4);
    training::v1::TokenFileSpec& tokens = *spec.mutable_dataset()->mutable_tokens();
    tokens.set_path(folder.path() + (is_wide ? "/wide.tokens" : "/narrow.bin"));
    if (is_wide) tokens.set_type(training::v1::TOKEN_TYPE_UINT32);
    tokens.set_holdout_fraction(0.3);
    const auto dataset = Open(spec);
    // (32 - 1) / 4 examples. The remaining tokens do not fill another one.
    EXPECT_EQ(dataset->size(), 7);
    EXPECT_EQ(dataset->training_size(), 5);
    ASSERT_EQ(dataset->fields().size(), 1u);
    EXPECT_EQ(dataset->fields()[0].name, "tokens");
    EXPECT_EQ(dataset->fields()[0].type, ElementType::kInt64);
    EXPECT_THAT(dataset->fields()[0].shape, ElementsAre(5));
    EXPECT_THAT(FieldValues<int64_t>(*dataset, {6, 0}, "tokens"),
                ElementsAre(72, 75, 78, 81, 84, 0, 3, 6, 9, 12));
    EXPECT_EQ(dataset->Describe(), "5 examples of 4 tokens to train on, 2 held out");
  }
}

TEST(DataKindsTest, GivesArraysAsTheyAre) {
  const TempDir folder;
  const std::vector<float> image = {0, 1, 2, 3, 4, 5, 6, 7};
  const std::vector<int64_t> label = {-5, 6};
  folder.Write("a.npz", ZipBytes({{"image.npy", NpyBytes("<f4", "(2, 1, 2, 2)", RawBytes(image))},
                                  {"label.npy", NpyBytes("<i8", "(2,)", RawBytes(label))}}));
  folder.Write("a.safetensors", SafetensorsBytes({{"image", {"F32", {2, 1, 2, 2}, RawBytes(image)}},
                                                  {"label", {"I64", {2}, RawBytes(label)}}}));
  folder.Write("a.npy", NpyBytes("<f4", "(2, 1, 2, 2)", RawBytes(image)));
  for (const char* name : {"a.npz", "a.safetensors", "a.npy"}) {
    JobSpec spec = RadioUnetJob();
    spec.mutable_dataset()->mutable_arrays()->set_path(folder.path() + "/" + name);
    const auto dataset = Open(spec);
    EXPECT_EQ(dataset->size(), 2);
    EXPECT_EQ(dataset->training_size(), 1);
    EXPECT_EQ(dataset->fields()[0].name, "image");
    EXPECT_THAT(dataset->fields()[0].shape, ElementsAre(1, 2, 2));
    EXPECT_THAT(FieldValues<float>(*dataset, {1, 0}, "image"), ElementsAre(4, 5, 6, 7, 0, 1, 2, 3));
    if (name == std::string("a.npy")) continue;
    EXPECT_THAT(dataset->fields()[1].shape, ElementsAre());
    EXPECT_THAT(FieldValues<int64_t>(*dataset, {1, 0}, "label"), ElementsAre(6, -5));
    EXPECT_EQ(dataset->Describe(),
              "1 examples of image (1, 2, 2), label () to train on, 1 held out");
  }
  // For an exported model, the array of a .npy file is named "input".
  JobSpec spec;
  spec.mutable_model()->mutable_exported();
  spec.mutable_dataset()->mutable_arrays()->set_path(folder.path() + "/a.npy");
  EXPECT_EQ(Open(spec)->fields()[0].name, "input");
}

// Returns the FNV-1a hash of all bytes of all examples.
uint64_t Fingerprint(const Dataset& dataset) {
  uint64_t hash = 14695981039346656037u;
  for (const std::string& bytes : GatherAll(dataset, AllExamples(dataset))) {
    for (const char byte : bytes) hash = (hash ^ static_cast<unsigned char>(byte)) * 1099511628211u;
  }
  return hash;
}

TEST(DataKindsTest, MakesTransitionsThatCanBeLearnt) {
  JobSpec spec = WorldModelJob();
  auto& made = *spec.mutable_dataset()->mutable_synthetic();
  made.mutable_trajectories()->set_episodes(10);
  made.mutable_trajectories()->set_episode_length(20);
  const auto dataset = Open(spec);
  EXPECT_EQ(dataset->Describe(), "180 transitions of 9 episodes to train on, 20 of 1 held out");
  EXPECT_THAT(dataset->fields()[0].shape, ElementsAre(16));
  EXPECT_THAT(dataset->fields()[1].shape, ElementsAre(4));
  const auto observation = FieldValues<float>(*dataset, {0, 1}, "observation");
  const auto change = FieldValues<float>(*dataset, {0}, "change");
  for (size_t i = 0; i < 16; ++i) {
    EXPECT_LT(std::abs(observation[i]), 1);
    EXPECT_NEAR(observation[i] + change[i], observation[16 + i], 1e-6);
  }
  for (const float deviation : dataset->statistics().at("observation").deviation) {
    EXPECT_GT(deviation, 0.01f);
  }
  EXPECT_EQ(Fingerprint(*dataset), Fingerprint(*Open(spec)));
  made.set_seed(1);
  EXPECT_NE(Fingerprint(*dataset), Fingerprint(*Open(spec)));
}

TEST(DataKindsTest, MakesTokensWithFourFollowersEach) {
  JobSpec spec = TransformerJob(1000, 8);
  spec.mutable_dataset()->mutable_synthetic()->mutable_tokens()->set_size(200'001);
  const auto dataset = Open(spec);
  EXPECT_EQ(dataset->size(), 25000);
  std::map<int64_t, std::map<int64_t, int>> followers;
  const auto tokens = FieldValues<int64_t>(*dataset, AllExamples(*dataset), "tokens");
  for (size_t i = 0; i < tokens.size(); i += 9) {
    for (size_t k = 0; k < 8; ++k) ++followers[tokens[i + k]][tokens[i + k + 1]];
  }
  EXPECT_GT(followers.size(), 100u);
  int64_t most = 0;
  for (const auto& [token, counts] : followers) {
    EXPECT_LE(counts.size(), 4u) << token;
    most = std::max(most, token);
  }
  EXPECT_LT(most, 1000);
}

TEST(DataKindsTest, MakesMapsWithWallsAndTransmitters) {
  JobSpec spec = RadioUnetJob();
  spec.mutable_dataset()->mutable_synthetic()->mutable_maps()->set_maps(20);
  spec.mutable_dataset()->mutable_synthetic()->mutable_maps()->set_size(32);
  const auto dataset = Open(spec);
  EXPECT_THAT(dataset->fields()[0].shape, ElementsAre(2, 32, 32));
  EXPECT_THAT(dataset->fields()[1].shape, ElementsAre(1, 32, 32));
  for (int64_t map = 0; map < 20; ++map) {
    const auto image = FieldValues<float>(*dataset, {map}, "image");
    const auto condition = FieldValues<float>(*dataset, {map}, "condition");
    size_t strongest = 0;
    for (size_t i = 0; i < image.size(); ++i) {
      EXPECT_GE(image[i], -1);
      EXPECT_LE(image[i], 1);
      if (image[i] > image[strongest]) strongest = i;
      EXPECT_TRUE(condition[i] == 0 || condition[i] == 1);
    }
    // The power is highest at the transmitter.
    EXPECT_EQ(condition[32 * 32 + strongest], 1) << map;
  }
  // Maps that are generated again at each Gather must be the same.
  spec.mutable_dataset()->mutable_synthetic()->mutable_maps()->set_maps(200);
  const auto kept = Open(spec);
  spec.mutable_dataset()->set_memory_limit_bytes(1 << 20);
  EXPECT_EQ(Fingerprint(*kept), Fingerprint(*Open(spec)));
}

TEST(PortableMathTest, AgreesWithTheLibrary) {
  for (double x = -25; x < 25; x += 0.01) {
    EXPECT_NEAR(PortableTanh(x), std::tanh(x), 2e-15) << x;
  }
  for (double x = 1e-6; x < 1e6; x *= 1.01) {
    EXPECT_NEAR(PortableLog2(x), std::log2(x), 1e-14 * std::max(1.0, std::abs(std::log2(x)))) << x;
  }
}

TEST(SafetensorsTest, ReadsWhatItWrites) {
  const TempDir folder;
  const std::string path = folder.path() + "/a.safetensors";
  const std::vector<double> doubles = {1.5, -2};
  const std::vector<float> floats = {1, 2, 3, 4, 5, 6};
  const std::vector<uint16_t> halves = {0x3C00, 0x7BFF, 0x0001};
  const std::string flags("\x01\x00\x01", 3);
  const int64_t scalar = -7;
  ASSERT_TRUE(WriteSafetensors(path,
                               {{"flag \"q\"\n/é", ElementType::kBool, {3}, flags.data()},
                                {"b.weight", ElementType::kFloat32, {2, 3}, floats.data()},
                                {"", ElementType::kFloat16, {3, 1}, halves.data()},
                                {"bf", ElementType::kBfloat16, {3}, halves.data()},
                                {"d", ElementType::kFloat64, {2}, doubles.data()},
                                {"none", ElementType::kFloat32, {0, 5}, nullptr},
                                {"step", ElementType::kInt64, {}, &scalar}},
                               {{"format", "pt"}, {"note", "tab\there"}})
                  .ok());
  const auto reader = SafetensorsReader::Open(path);
  ASSERT_TRUE(reader.ok()) << reader.status();
  EXPECT_EQ(reader->tensors().size(), 7u);
  EXPECT_EQ(reader->metadata().at("format"), "pt");
  EXPECT_EQ(reader->metadata().at("note"), "tab\there");
  const auto& weight = reader->tensors().at("b.weight");
  EXPECT_THAT(weight.shape, ElementsAre(2, 3));
  EXPECT_EQ(weight.offset % 8, 0u);
  std::vector<float> read(6);
  ASSERT_TRUE(reader->Read(weight, read.data()).ok());
  EXPECT_EQ(read, floats);
  int64_t number = 0;
  ASSERT_TRUE(reader->Read(reader->tensors().at("step"), &number).ok());
  EXPECT_EQ(number, -7);
  EXPECT_EQ(reader->tensors().at("flag \"q\"\n/é").type, ElementType::kBool);
  EXPECT_EQ(reader->tensors().at("none").size, 0u);
}

TEST(SafetensorsTest, RefusesToWriteNamesTwice) {
  const TempDir folder;
  const std::string path = folder.path() + "/a.safetensors";
  const float value = 1;
  for (const char* name : {"a", "__metadata__"}) {
    const absl::Status status = WriteSafetensors(
        path, {{name, ElementType::kFloat32, {}, &value}, {"a", ElementType::kFloat32, {}, &value}},
        {});
    EXPECT_TRUE(absl::IsInvalidArgument(status)) << status;
    EXPECT_FALSE(std::filesystem::exists(path));
  }
}

}  // namespace
}  // namespace genesis
