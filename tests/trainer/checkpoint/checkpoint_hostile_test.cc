#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <zlib.h>

#include <fstream>
#include <random>
#include <sstream>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "base/text/utf8.h"
#include "tests/temp_dir.h"
#include "tests/trainer/same_state.h"
#include "tests/trainer/state_for_test.h"
#include "trainer/checkpoint/checkpoint_reader.h"
#include "trainer/checkpoint/manifest.h"
#include "trainer/checkpoint/pickle_writer.h"
#include "trainer/checkpoint/verify.h"
#include "trainer/checkpoint/weights.h"
#include "trainer/checkpoint/write_checkpoint.h"
#include "trainer/formats/data_file.h"
#include "trainer/formats/pickle_reader.h"
#include "trainer/formats/zip_writer.h"

namespace genesis {
namespace {

using testing::HasSubstr;
using testing::StartsWith;
using namespace std::string_literals;

template <typename T>
std::string Bytes(T number) {
  return {reinterpret_cast<const char*>(&number), sizeof(number)};
}
std::string Text(const std::string& text) {
  return "X" + Bytes(static_cast<uint32_t>(text.size())) + text;
}
std::string Long(int64_t number) { return "\x8a\x08" + Bytes(number); }

// Returns a float tensor as torch.save pickles it, with any sizes and strides.
std::string Tensor(const std::string& key, int64_t elements, int64_t offset,
                   const std::vector<int64_t>& sizes, const std::vector<int64_t>& strides) {
  std::string pickle = "ctorch._utils\n_rebuild_tensor_v2\n((" + Text("storage") +
                       "ctorch\nFloatStorage\n" + Text(key) + Text("cpu") + Long(elements) + "tQ" +
                       Long(offset) + "(";
  for (const int64_t size : sizes) pickle += Long(size);
  pickle += "t(";
  for (const int64_t stride : strides) pickle += Long(stride);
  return pickle + "t\x89" + "ccollections\nOrderedDict\n)RtR";
}
std::string Dict(const std::string& items) { return "\x80\x02}(" + items + "u."; }

class HostileFileTest : public testing::Test {
 protected:
  // Limits the memory that hostile files can make the reader allocate.
  void SetUp() override {
    std::ifstream("/proc/self/statm") >> pages_;
    getrlimit(RLIMIT_AS, &before_);
    rlimit limit = before_;
    limit.rlim_cur = static_cast<rlim_t>(pages_) * 4096 + (rlim_t{768} << 20);
    // Sanitizers reserve far more address space than any limit.
    if (pages_ < (int64_t{1} << 30)) {
      ASSERT_EQ(setrlimit(RLIMIT_AS, &limit), 0);
    }
  }
  void TearDown() override { setrlimit(RLIMIT_AS, &before_); }

  void WriteZip(const std::vector<std::pair<std::string, std::string>>& records) const {
    std::string file;
    ZipWriter zip([&](const void* data, uint64_t size) {
      file.append(static_cast<const char*>(data), size);
    });
    for (const auto& [name, bytes] : records) zip.Add(name, bytes.data(), bytes.size());
    zip.Finish();
    Spill(file);
  }
  std::string FaultOf(const std::string& pickle) const {
    WriteZip({{"a/data.pkl", pickle}, {"a/data/0", std::string(32, '\0')}});
    return Fault();
  }
  std::string Fault() const {
    const absl::Status status = ReadWeights(path_).status();
    EXPECT_FALSE(status.ok());
    EXPECT_THAT(std::string(status.message()), StartsWith(path_ + ": "));
    EXPECT_LT(status.message().size(), 1000u);
    EXPECT_TRUE(IsUtf8(status.message())) << status;
    return std::string(status.message());
  }

  std::string Slurp() const {
    std::stringstream bytes;
    bytes << std::ifstream(path_, std::ios::binary).rdbuf();
    return bytes.str();
  }
  void Spill(const std::string& bytes) const {
    // Some file systems flush a file that is truncated and rewritten, but not a new one.
    std::filesystem::remove(path_);
    std::ofstream(path_, std::ios::binary) << bytes;
  }

  const TempDir temp_;
  const std::string path_ = temp_.path() + "/x.pt";
  int64_t pages_ = 0;
  rlimit before_{};
};

TEST_F(HostileFileTest, PicklesThatLieAreNamed) {
  const int64_t huge = int64_t{1} << 62;
  const std::vector<std::pair<std::string, std::string>> cases = {
      {Dict(Text("w") + Tensor("0", 9, 0, {9}, {1})),
       "entry w has storage 0 of 9 elements, and its record holds 8"},
      {Dict(Text("w") + Tensor("0", huge, 0, {2}, {1})), "of 4611686018427387904 elements"},
      {Dict(Text("w") + Tensor("0", 8, 0, {3}, {4})),
       "entry w reaches element 8 of a storage of 8"},
      {Dict(Text("w") + Tensor("0", 8, 8, {1}, {1})),
       "entry w reaches element 8 of a storage of 8"},
      {Dict(Text("w") + Tensor("0", 8, 0, {2, 2}, {huge, huge})), "entry w reaches element 9.2"},
      {Dict(Text("w") + Tensor("0", 8, 0, {-1}, {1})), "a call has arguments that do not fit"},
      {Dict(Text("w") + Tensor("0", 8, 0, {2}, {-1})), "a call has arguments that do not fit"},
      {Dict(Text("w") + Tensor("0", 8, -1, {2}, {1})), "in entry w: a call has arguments that"},
      {Dict(Text("w") + Tensor("0", -8, 0, {2}, {1})), "in entry w: a storage is malformed"},
      {Dict(Text("w") + Tensor("0", 8, 0, {2}, {})), "a call has arguments that do not fit"},
      {Dict(Text("w") + Tensor("0", 8, 0, {huge / 16}, {0})), "entry w repeats 8 elements to 2.8"},
      {Dict(Text("w") + Tensor("0", 8, 0, {huge, 4, 0}, {1, 1, 1})), "accepted: up to 2^60"},
      {Dict(Text("w") + Tensor("1", 8, 0, {2}, {1})), "has no record a/data/1"},
      {Dict(Text("w") + Tensor("../../etc/passwd", 8, 0, {2}, {1})), "has no record a/data/../../"},
      {Dict(Text("w") + Tensor("0", 2, 0, {2}, {1}) + Text("w") + Tensor("0", 2, 0, {2}, {1})),
       "entry w is there twice"},
      {Dict(Text("state_dict") + "cos\nsystem\n" + Text("true") + "\x85R"),
       "wants to call os.system in entry state_dict; accepted: tensors"},
      {Dict(Text("w") + "c__builtin__\neval\n" + Text("1") + "\x85R"), "__builtin__.eval"},
      {Dict(Text("w") + "ctorch\nFloatStorage\n)R"), "a call has arguments that do not fit"},
      {Dict(Text("w") + "ctorch\nFloatStorage\n"), "entry w is a type, not a value"},
      // In Python: d = {}; d["d"] = d
      {"\x80\x02}q"s + "\x01" + Text("d") + "h\x01s.", "entry d.d.d.d.d.d.d unfolds to far more"},
      {"\x80\x02]q"s + "\x01h\x01" + "a.", "unfolds to far more"},
      {"\x80\x02" + std::string(5000, ']') + std::string(4999, 'a') + ".", "nested more than 100"},
      {"\x80\x02h\x07.", "it recalls what was never remembered"},
      {"\x80\x02j\xff\xff\xff\xff.", "it recalls what was never remembered"},
      {"\x80\x02\x8b\xff\xff\xff\x7f.", "it is cut off"},
      {"\x80\x04\x8d" + Bytes(huge) + "x.", "it is cut off"},
      {"\x80\x02X\xff\xff\xff\xff" + "x."s, "it is cut off"},
      {"\x80\x02" + Long(1).substr(0, 4), "it is cut off"},
      {"", "it is cut off"},
      {"\x80\x02" + std::string(5'000'000, 'N') + ".", "holds more than 4000000 values"},
      {"\x80\x02" + std::string(5'000'000, '(') + ".", "does not end in one value"}};
  for (const auto& [pickle, wanted] : cases) EXPECT_THAT(FaultOf(pickle), HasSubstr(wanted));
}

// [[[...], [...]], [[...], [...]]], ten levels deep and ten wide; then a long text, repeated.
TEST_F(HostileFileTest, WhatUnfoldsBeyondAllBoundsIsRefused) {
  std::string wide = "](]q"s + '\0';
  for (char level = 1; level <= 10; ++level) {
    wide += "](";
    for (int i = 0; i < 10; ++i) wide += "h"s + static_cast<char>(level - 1);
    wide += "eq"s + level;
  }
  EXPECT_THAT(FaultOf(Dict(Text("w") + wide + "e")),
              HasSubstr("unfolds to far more than the file holds"));
  std::string text = Text(std::string(100'000, 'x')) + "q"s + '\0' + "](";
  for (int i = 0; i < 100'000; ++i) text += "h"s + '\0';
  EXPECT_THAT(FaultOf(Dict(Text("w") + "]" + "(" + text + "ee")),
              HasSubstr("unfolds to far more than the file holds"));
}

TEST_F(HostileFileTest, ArchivesThatLieAreNamed) {
  const std::string sound = Dict(Text("w") + Tensor("0", 8, 0, {8}, {1}));
  const std::string data(32, '\1');
  WriteZip({{"a/data.pkl", sound}, {"a/data/0", data}});
  ASSERT_TRUE(ReadWeights(path_).ok());
  const std::string good = Slurp();

  WriteZip({{"a/data.pkl", sound}, {"b/data.pkl", sound}, {"a/data/0", data}});
  EXPECT_THAT(Fault(), HasSubstr("is a zip file with 2 records data.pkl"));
  WriteZip({{"a/other", sound}});
  EXPECT_THAT(Fault(), HasSubstr("is a zip file with 0 records data.pkl"));
  WriteZip({{"a/data.pkl", sound}, {"a/data/0", data}, {"a/../../x", data}});
  EXPECT_THAT(Fault(), HasSubstr("has a record named \"a/../../x\"; accepted: names without .."));
  WriteZip({{"a/data.pkl", sound}, {"a/data/0", data}, {"a/byteorder", "big"}});
  EXPECT_THAT(Fault(), HasSubstr("byte order of another kind of machine"));
  WriteZip({{"a/data.pkl", sound}, {"a/data/0", data}, {"a/constants.pkl", "x"}});
  EXPECT_THAT(Fault(), HasSubstr("is a TorchScript module"));

  Spill(good.substr(0, good.size() - 10));
  EXPECT_THAT(Fault(), HasSubstr("cut off or of another kind"));
  Spill("");
  EXPECT_THAT(Fault(), HasSubstr("is not a sound zip file"));
  std::string flipped = good;
  flipped[good.find(data)] ^= 1;
  Spill(flipped);
  EXPECT_THAT(Fault(), HasSubstr("record \"a/data/0\" fails its checksum"));

  // Offsets in the directory entry of data/0: method 10, sizes 20 and 24, its own offset 42.
  const size_t entry = good.rfind("PK\1\2");
  const auto patched = [&](size_t at, const std::string& bytes) {
    std::string file = good;
    file.replace(entry + at, bytes.size(), bytes);
    Spill(file);
    return Fault();
  };
  EXPECT_THAT(patched(20, Bytes(uint32_t{0x7FFFFFFF}) + Bytes(uint32_t{0x7FFFFFFF})),
              HasSubstr("record \"a/data/0\" lies outside the file"));
  EXPECT_THAT(patched(42, Bytes(uint32_t{0})), HasSubstr("overlap"));
  EXPECT_THAT(patched(42, Bytes(uint32_t{0x7FFFFFFF})), HasSubstr("lies outside the file"));
  EXPECT_THAT(
      patched(10, Bytes(uint16_t{8}) + good.substr(entry + 12, 12) + Bytes(uint32_t{30'000})),
      HasSubstr("the method in the header of record \"a/data/0\" is not that of the central"));
}

TEST_F(HostileFileTest, TextThatIsNoUtf8IsFitForMessages) {
  const std::string cut = std::string(199, 'k') + "\xc3\xa9" + std::string(50, 'k');
  for (const std::string& key :
       {"\xff\xfe"s, cut, std::string(6000, '\xe9'), "a\0b"s, "\x1b[2J\n"s}) {
    FaultOf(Dict(Text(key) + Text(key)));
    FaultOf(Dict(Text(key) + Dict(Text(key) + Long(1)).substr(2)));
    FaultOf(Dict(Text(key) + Tensor(key, 8, 0, {2}, {1})));
    FaultOf(Dict(Text(key) + Tensor("0", 9, 0, {9}, {1})));
    FaultOf(Dict(Text(key) + "c" + key + "\nsystem\n)R"));
    FaultOf(Dict(Text("model_state_dict") + Long(1) + Text(key) + Long(1)));
    FaultOf(Dict(Text("state_dict") + "}(" + Text(key) + Text(key) + "u"));
    WriteZip({{key, "x"}});
    Fault();
    WriteZip({{key + "/data.pkl", "x"}, {key + "/../x", "x"}});
    Fault();
  }
}

TEST_F(HostileFileTest, AKeyThatIsNoUtf8IsNotExported) {
  WriteZip({{"a/data.pkl", Dict(Text("w\xff") + Tensor("0", 8, 0, {8}, {1}))},
            {"a/data/0", std::string(32, '\1')}});
  ASSERT_TRUE(ReadWeights(path_).ok());
  const std::string to = temp_.path() + "/y.safetensors";
  const absl::Status status = ExportSafetensors(path_, to, WeightsKind::kModel);
  EXPECT_THAT(std::string(status.message()), HasSubstr("tensor name \"w\\xff\" is not UTF-8"));
  EXPECT_FALSE(std::filesystem::exists(to));
}

// 2,000 transposed views of 1 MiB need 2 GB if each is copied.
TEST_F(HostileFileTest, ManyViewsOfOneStorageAreRefused) {
  constexpr int64_t kSide = 512;
  const auto views = [&](int count, const std::vector<int64_t>& strides) {
    std::string items;
    for (int i = 0; i < count; ++i) {
      items += Text(absl::StrCat("w", i)) + Tensor("0", kSide * kSide, 0, {kSide, kSide}, strides);
    }
    WriteZip({{"a/data.pkl", Dict(items)}, {"a/data/0", std::string(4 * kSide * kSide, '\0')}});
  };
  views(2000, {1, kSide});
  EXPECT_THAT(Fault(), HasSubstr("share storages so often"));
  views(2000, {kSide, 1});
  EXPECT_THAT(Fault(), HasSubstr("share storages so often"));
  // A model that uses the same layer everywhere has such views, so they are accepted.
  views(12, {kSide, 1});
  EXPECT_TRUE(ReadWeights(path_).ok());
}

// Any object may be in place of a checkpoint or its manifest. Reads must never block on it.
TEST_F(HostileFileTest, WhatIsNoFileBlocksNothing) {
  const TrainingState state = StateForTest(training::v1::OPTIMIZER_KIND_ADAM, 1);
  ASSERT_TRUE(WriteCheckpoint(state, path_, {.job_id = "a"}).ok());
  const std::string manifest = ManifestPath(path_);
  std::filesystem::remove(manifest);
  ASSERT_EQ(mkfifo(manifest.c_str(), 0600), 0);
  EXPECT_THAT(std::string(ReadCheckpoint(path_).status().message()),
              HasSubstr("is not a regular file"));
  const auto expect_refused = [this] {
    EXPECT_THAT(std::string(ReadCheckpoint(path_).status().message()), StartsWith(path_ + ": "));
    EXPECT_THAT(Fault(), StartsWith(path_ + ": "));
  };
  std::filesystem::remove(path_);
  ASSERT_EQ(mkfifo(path_.c_str(), 0600), 0);
  expect_refused();
  std::filesystem::remove(path_);
  std::filesystem::create_directory(path_);
  expect_refused();
  std::filesystem::remove(path_);
  std::filesystem::create_symlink("/dev/zero", path_);
  expect_refused();
  std::filesystem::remove(path_);
  std::filesystem::create_symlink(path_, path_);
  expect_refused();
}

TEST_F(HostileFileTest, ACutSafetensorsFileIsToldSo) {
  const std::string path = temp_.path() + "/z.safetensors";
  for (const std::string& bytes : {""s, "\x40\0\0"s, "\x40\0\0\0\0\0\0\0{\"a\""s}) {
    std::ofstream(path, std::ios::binary) << bytes;
    EXPECT_THAT(std::string(ReadWeights(path).status().message()),
                HasSubstr("is not a sound safetensors file"));
  }
}

class MutationTest : public HostileFileTest {};

// Changes one byte or the end of a checkpoint. The reader must not crash, and
// must detect every change.
TEST_F(MutationTest, EveryChangeOfACheckpointIsNoticed) {
  const TrainingState state = StateForTest(training::v1::OPTIMIZER_KIND_ADAM, 1);
  ASSERT_TRUE(WriteCheckpoint(state, path_, {.job_id = "a", .held_out_loss = 0.5}).ok());
  const std::string good = Slurp();
  std::mt19937 chooser(5);
  for (int round = 0; round < 3000; ++round) {
    std::string bad = good;
    const size_t at = chooser() % good.size();
    if (round % 4 == 3) {
      bad.resize(at);
    } else {
      bad[at] = static_cast<char>(bad[at] ^ (1 + chooser() % 255));
    }
    Spill(bad);
    const absl::Status status = ReadCheckpoint(path_).status();
    // If the ID is damaged, the manifest belongs to another file, and the CRC-32 detects it.
    ASSERT_FALSE(status.ok()) << "byte " << at;
    ASSERT_THAT(std::string(status.message()), StartsWith(path_));
  }
}

// Changes each byte of a checkpoint without a manifest. Changes of bytes that no reader uses, such
// as dates, attributes and padding of records, may be ignored, but the state must stay the same.
TEST_F(MutationTest, EveryChangeWithoutAManifestIsNoticedOrHarmless) {
  const TrainingState state = StateForTest(training::v1::OPTIMIZER_KIND_SGD, 1);
  ASSERT_TRUE(WriteCheckpoint(state, path_, {.job_id = "a"}).ok());
  std::filesystem::remove(ManifestPath(path_));
  const std::string good = Slurp();
  const TrainingState before = *ReadCheckpoint(path_);
  TrainingState other = before;
  other.optimizer.parameters[1][0].second = other.optimizer.parameters[1][0].second + 1e-6;
  ASSERT_EQ(Difference(other, before), "optimizer");
  other = before;
  other.position.sampler.batch += 1;
  ASSERT_NE(Difference(other, before), "");
  size_t harmless = 0;
  for (size_t at = 0; at < good.size(); ++at) {
    std::string bad = good;
    bad[at] = static_cast<char>(bad[at] ^ (1 << at % 8));
    Spill(bad);
    const absl::StatusOr<TrainingState> read = ReadCheckpoint(path_);
    if (!read.ok()) continue;
    ++harmless;
    ASSERT_EQ(Difference(*read, before), "") << at;
  }
  EXPECT_GT(harmless, 0u);
  // Padding is up to 63 bytes per record.
  EXPECT_LT(harmless, good.size() / 2);
}

// There are no checksums here, so the unpickler and the tree must parse any bytes.
TEST_F(MutationTest, MutatedPicklesNeverGetThrough) {
  const PickledTree tree = PickleTree(
      ValueDict{{{"w", at::arange(8, at::kFloat).view({2, 4}).t()},
                 {"l", ValueList{int64_t{1}, 2.5, true, Value()}},
                 {int64_t{7}, ValueTuple{{"text", ValueDict{{{"deep", at::zeros({})}}, {}}}}}},
                {}});
  std::mt19937 chooser(6);
  int accepted = 0;
  for (int round = 0; round < 20000; ++round) {
    std::string pickle = tree.pickle;
    for (unsigned changes = 1 + chooser() % 3; changes > 0; --changes) {
      const size_t at = chooser() % pickle.size();
      switch (chooser() % 4) {
        case 0:
          pickle.erase(at, 1 + chooser() % 8);
          break;
        case 1:
          pickle.insert(at, pickle.substr(chooser() % pickle.size(), chooser() % 16));
          break;
        default:
          pickle[at] = static_cast<char>(chooser());
      }
      if (pickle.empty()) pickle = ".";
    }
    // Creating files is slow, so only pickles that ReadPickle accepts, and a few others, go on.
    if (!ReadPickle(pickle).ok() && round % 100 != 0) continue;
    std::vector<std::pair<std::string, std::string>> records = {{"a/data.pkl", pickle}};
    for (size_t i = 0; i < tree.storages.size(); ++i) {
      records.emplace_back(absl::StrCat("a/data/", i),
                           std::string(tree.storages[i].data, tree.storages[i].size));
    }
    WriteZip(records);
    const absl::Status status = ReadWeights(path_).status();
    accepted += status.ok() ? 1 : 0;
    ASSERT_TRUE(IsUtf8(status.message())) << round;
    ASSERT_LE(status.message().size(), kMaxFileFault) << round;
  }
  // Changed texts and numbers are valid, but entry l is not a tensor, which is an error.
  EXPECT_EQ(accepted, 0);
}

TEST_F(MutationTest, EveryChangeOfAManifestIsHandled) {
  const TrainingState state = StateForTest(training::v1::OPTIMIZER_KIND_SGD, 1);
  ASSERT_TRUE(WriteCheckpoint(state, path_, {.job_id = "a\n\"", .held_out_loss = 0.5}).ok());
  EXPECT_EQ(ReadManifest(path_)->job_id, "a\n\"");
  const std::string good = [this] {
    std::stringstream bytes;
    bytes << std::ifstream(ManifestPath(path_)).rdbuf();
    return bytes.str();
  }();
  const auto put = [this](const std::string& text) {
    std::filesystem::remove(ManifestPath(path_));
    std::ofstream(ManifestPath(path_)) << text;
    return VerifyCheckpoint(path_);
  };
  const auto fault = [&](const std::string& from, const std::string& to) {
    return std::string(put(absl::StrReplaceAll(good, {{from, to}})).status().message());
  };
  EXPECT_THAT(fault("\"format\": 1", "\"format\": 2"), HasSubstr("its format is 2; accepted: 1"));
  EXPECT_THAT(fault("\"size\": ", "\"size\": 1"), HasSubstr("bytes long; its manifest says 1"));
  EXPECT_THAT(fault("\"crc32c\": \"", "\"crc32c\": \"0"), HasSubstr("eight hexadecimal digits"));
  EXPECT_THAT(std::string(put(good.substr(0, 50)).status().message()),
              HasSubstr("is not a valid manifest: "));
  EXPECT_THAT(*put(absl::StrReplaceAll(good, {{"\"id\": \"0", "\"id\": \"1"}})),
              HasSubstr("was written for another file of this name"));
  std::filesystem::remove(ManifestPath(path_));
  EXPECT_THAT(*VerifyCheckpoint(path_), HasSubstr("has no manifest; its own checksums are right"));
  std::mt19937 chooser(7);
  for (int round = 0; round < 1000; ++round) {
    std::string bad = good;
    bad[chooser() % bad.size()] = static_cast<char>(chooser());
    if (round % 3 == 0) bad.resize(chooser() % bad.size());
    if (round % 3 == 1) bad.insert(chooser() % bad.size(), bad.substr(chooser() % bad.size(), 40));
    const absl::Status status = put(bad).status();
    ASSERT_TRUE(IsUtf8(status.message())) << round;
    ASSERT_LE(status.message().size(), kMaxFileFault) << round;
  }
  EXPECT_EQ(*put(good), "");
}

}  // namespace
}  // namespace genesis
