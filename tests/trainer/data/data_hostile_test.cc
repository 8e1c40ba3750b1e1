// Tests that damaged, inconsistent or malicious files are refused, within bounded memory.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/stat.h>

#include <cmath>
#include <filesystem>
#include <functional>
#include <limits>
#include <random>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "base/text/utf8.h"
#include "config/job/job_spec.h"
#include "tests/temp_dir.h"
#include "tests/trainer/data_files.h"
#include "tests/trainer/npz_writer.h"
#include "trainer/formats/data_file.h"
#include "trainer/formats/element_value.h"
#include "trainer/formats/safetensors.h"

namespace genesis {
namespace {

using testing::HasSubstr;
using testing::StartsWith;
using training::v1::JobSpec;
using Records = std::map<std::string, std::string>;
using Tensors = std::map<std::string, RawTensor>;

enum class Kind { kTrajectories, kTokens, kArrays };

absl::StatusOr<std::unique_ptr<Dataset>> Open(Kind kind, const std::string& path) {
  JobSpec spec;
  if (kind == Kind::kTrajectories) {
    spec = WorldModelJob(2);
    spec.mutable_dataset()->mutable_trajectories()->set_path(path);
  } else if (kind == Kind::kTokens) {
    spec = TransformerJob(300, 4);
    spec.mutable_dataset()->mutable_tokens()->set_path(path);
  } else {
    spec = RadioUnetJob();
    spec.mutable_dataset()->mutable_arrays()->set_path(path);
  }
  return OpenDataset(WithDefaults(spec, LossScaleSettings()));
}

// Returns the error message for a file with these bytes.
std::string Fault(Kind kind, const std::string& name, const std::string& bytes) {
  const TempDir folder;
  folder.Write(name, bytes);
  const auto dataset = Open(kind, folder.path() + "/" + name);
  if (dataset.ok()) return "it was accepted";
  const std::string message(dataset.status().message());
  // Every message starts with the file's name or path.
  EXPECT_TRUE(message.rfind(name + ": ", 0) == 0 ||
              message.rfind(folder.path() + "/" + name + ": ", 0) == 0)
      << message;
  EXPECT_TRUE(IsUtf8(message)) << message;
  EXPECT_LE(message.size(), kMaxFileFault);
  return message;
}

struct Row {
  std::string bytes;
  std::string message;
};

void ExpectFaults(Kind kind, const std::string& name, const std::vector<Row>& rows) {
  for (const Row& row : rows) EXPECT_THAT(Fault(kind, name, row.bytes), HasSubstr(row.message));
}

std::string Floats(const std::vector<float>& values) { return RawBytes(values); }

TEST(HostileDataTest, TrajectoriesInNpz) {
  const auto with = [](const std::string& name, const std::string& npy) {
    Records records = SpiralRecords(2, 4);
    records[name + ".npy"] = npy;
    return ZipBytes(records);
  };
  const auto with_value = [&](double value) {
    std::vector<double> values(16, 0.5);
    values[5] = value;
    return with("observations", NpyBytes("<f8", "(8, 2)", RawBytes(values)));
  };
  const std::string rows = Floats(std::vector<float>(8));
  std::string twice = ZipBytes({{"actions.npy", "x"}, {"actionz.npy", "y"}});
  for (size_t at; (at = twice.find("actionz")) != std::string::npos;) twice[at + 6] = 's';
  std::string overlapping = ZipBytes({{"a.npy", "x"}, {"b.npy", "y"}});
  overlapping.replace(overlapping.rfind("b.npy") - 4, 4, 4, '\0');
  ExpectFaults(
      Kind::kTrajectories, "a.npz",
      {{"", "it has no central directory"},
       {"PK", "it has no central directory"},
       {twice, "record \"actions.npy\" is there twice"},
       {overlapping, "records \"a.npy\" and \"b.npy\" overlap"},
       {with_value(std::nan("")), "observations[2, 1] is nan (episode 0, step 2)"},
       {with_value(std::numeric_limits<double>::infinity()), "observations[2, 1] is inf"},
       // Finite as float64, but not as float32.
       {with_value(1e300), "observations[2, 1] is 1e+300"},
       {with_value(-3.4e38), "it was accepted"},
       {with("rewards", NpyBytes("<f4", "(8,)", Floats({0, 0, 0, 0, 0, 0, -INFINITY, 0}))),
        "rewards[6] is -inf (episode 1, step 2)"},
       {with("rewards", NpyBytes("<f2", "(8,)", std::string(16, '\0'))),
        "rewards is float16; accepted: float32 or float64"},
       {with("rewards", NpyBytes(">f4", "(8,)", rows)), "rewards is big-endian ('>f4')"},
       {with("rewards", NpyBytes("<c8", "(4,)", rows)), "has elements of type '<c8'"},
       {with("rewards", NpyBytes("|O", "(8,)", rows)), "has elements of type '|O'"},
       {with("rewards", NpyBytes("<f4", "(8,)", rows, "True")), "rewards is in fortran order"},
       {with("rewards", NpyBytes("<f4", "(-8,)", rows)), "the shape (-8,) in its header is unread"},
       {with("rewards", NpyBytes("<f4", "(9223372036854775808,)", rows)), "is unreadable"},
       {with("rewards", NpyBytes("<f4", "(9223372036854775807,)", rows)), "at most 2^40 elements"},
       {with("rewards", NpyBytes("<f4", "(4294967296, 4294967296)", rows)), "at most 2^40"},
       {with("rewards", NpyBytes("<f4", "(9,)", rows)), "holds 32 bytes but its shape (9,)"},
       {with("rewards", NpyBytes("<f4", "(8,), 'shape': (8,)", rows)), "is there twice"},
       {with("rewards", NpyBytes("<f4", "(4, 2)", rows)), "rewards has shape (4, 2)"},
       {with("rewards", "\x93NUMPY\x01"), "rewards is not a NumPy array"},
       {with("rewards", std::string("\x93NUMPY\x02\x00\xFF\xFF\xFF\x7F", 12) + rows),
        "rewards: its header is cut off"},
       {with("rewards", std::string("\x93NUMPY\x09\x00\x01\x00", 10) + rows), ".npy version 9"},
       {with("observations", NpyBytes("<f4", "(0, 2)", "")), "observations has shape (0, 2)"},
       {with("observations", NpyBytes("<f4", "()", Floats({1}))), "observations has shape ()"},
       {with("actions", NpyBytes("<i8", "(8,)", RawBytes<int64_t>({0, 1, 2, 3, 4, 5, 6, 1024}))),
        "actions[7] is 1024; accepted for integer actions: 0 to 1023"}});
}

// Deflate compresses zeros a thousandfold. A wrong size must not lead to a huge allocation.
TEST(HostileDataTest, ZipBombs) {
  Records records = SpiralRecords(2, 4);
  records["rewards.npy"] = NpyBytes("<f4", "(8,)", std::string(8 << 20, '\0'));
  const std::string packed = ZipBytes(records, /*deflate=*/true);
  ASSERT_LT(packed.size(), 64u << 10);
  EXPECT_THAT(Fault(Kind::kTrajectories, "a.npz", packed), HasSubstr("holds 8388608 bytes"));
  // The size in the central directory is 4 GiB minus 2.
  std::string lying = packed;
  const size_t entry = lying.rfind("rewards.npy");
  ASSERT_NE(entry, std::string::npos);
  lying.replace(entry - 22, 4, "\xFE\xFF\xFF\xFF");
  EXPECT_THAT(Fault(Kind::kTrajectories, "a.npz", lying), HasSubstr("claims 4294967294 bytes"));
}

// Redundant fields of a zip file must agree, and every byte must belong to a record.
TEST(HostileDataTest, ZipFilesThatContradictThemselves) {
  const Records maps = {
      {"image.npy", NpyBytes("<f4", "(3, 1, 2, 2)", Floats(std::vector<float>(12, 1)))},
      {"other.npy", NpyBytes("<f4", "(3, 2)", Floats(std::vector<float>(6, 2)))}};
  const std::string good = ZipBytes(maps);
  const size_t local = good.find("PK\3\4", 4);
  const size_t entry = good.find("PK\1\2");
  const size_t end = good.find("PK\5\6");
  const auto flipped = [&](size_t at) {
    std::string bad = good;
    bad[at] = static_cast<char>(bad[at] ^ 1);
    return Fault(Kind::kArrays, "a.npz", bad);
  };
  const char* const header = "in the header of record \"other.npy\" is not that of";
  // Offsets of version, flags, method, checksum, both sizes, and name.
  for (const size_t at : {4, 6, 7, 8, 14, 17, 18, 22, 30, 38}) {
    EXPECT_THAT(flipped(local + at), HasSubstr(header)) << at;
  }
  for (const size_t at : {26, 28}) EXPECT_NE(flipped(local + at), "it was accepted") << at;
  for (const size_t at : {6, 8, 9, 10, 16, 20, 24, 28, 30, 32, 34, 42, 46}) {
    EXPECT_NE(flipped(entry + at), "it was accepted") << at;
  }
  for (size_t at = end; at < good.size(); ++at) EXPECT_NE(flipped(at), "it was accepted") << at;
  ExpectFaults(Kind::kArrays, "a.npz",
               {{good + "x", "its comment does not end where the file ends"},
                {"x" + good, "does not end where its end record begins"},
                {std::string(good).insert(entry, "xy"), "does not end where its end record"},
                {std::string(good).insert(end, "xy"), "does not end where its end record"}});
  // A complete comment at the end of the file is ignored.
  std::string commented = good + "note";
  commented[good.size() - 2] = 4;
  EXPECT_EQ(Fault(Kind::kArrays, "a.npz", commented), "it was accepted");
}

TEST(HostileDataTest, ForeignTextIsFitForMessages) {
  const std::string texts[] = {"\xff\xfe",
                               std::string("a\0b", 3),
                               std::string(6000, 'x') + "\xc3",
                               "\xed\xa0\x80",
                               "line\nline\x1b[2J",
                               "\xe2\x80\xae"
                               "gpj"};
  for (const std::string& text : texts) {
    const std::string npy = NpyBytes("|u1", "(2,)", "ab");
    Fault(Kind::kArrays, "a.npz", ZipBytes({{text + ".npy", npy}}));
    Fault(Kind::kArrays, "a.npz", ZipBytes({{text, npy}, {text + ".npy", npy}}));
    Fault(Kind::kTrajectories, "a.npz", ZipBytes({{text + ".npy", npy}}));
    Fault(Kind::kArrays, "a.npy", NpyBytes(text, "(2,)", "ab"));
    Fault(Kind::kArrays, "a.npy", NpyBytes("|u1", "(" + text + ",)", "ab"));
    Fault(Kind::kArrays, "a.safetensors", SafetensorsRaw("{\"" + text + "\": 1}", ""));
    Fault(Kind::kTrajectories, "a.jsonl", "{\"" + text + "\": x}\n");
    Fault(Kind::kTrajectories, "a.jsonl", text);
  }
}

TEST(HostileDataTest, TextMustBeUtf8) {
  ExpectFaults(Kind::kTrajectories, "a.jsonl",
               {{"{\"observation\": [1], \"note\": \"caf\xe9\"}\n",
                 "line 1 is not a transition in JSON at byte 33: a string is not UTF-8"}});
  ExpectFaults(Kind::kArrays, "a.safetensors",
               {{SafetensorsRaw("{\"__metadata__\": {\"k\": \"\xc0\xaf\"}}", ""), "not UTF-8"}});
}

TEST(HostileDataTest, SaysWhatAFileOfAnotherKindLooksLike) {
  const std::string npy = NpyBytes("<f4", "(2,)", Floats({1, 2}));
  const std::string tensors = SafetensorsBytes({{"a", {"U8", {2}, "ab"}}});
  ExpectFaults(Kind::kArrays, "a.npz",
               {{npy, "it begins like a NumPy array (.npy)"},
                {tensors, "it begins like a safetensors file"},
                {tensors.substr(0, 20), "it begins like a safetensors file"}});
  ExpectFaults(Kind::kArrays, "a.safetensors",
               {{ZipBytes({{"a.npy", npy}}), "it begins like a zip file"}});
}

TEST(HostileDataTest, Safetensors) {
  const auto raw = [](const std::string& header, size_t data = 8) {
    return SafetensorsRaw(header, std::string(data, '\0'));
  };
  const std::string f = R"({"a": {"dtype": "F32", "shape": [2], "data_offsets": [0, 8]})";
  std::string huge = raw(f + "}");
  huge.replace(0, 8, 8, '\xFF');
  std::string long_header = raw(f + "}");
  long_header[2] = 1;
  std::string deep(100, '[');
  ExpectFaults(
      Kind::kArrays, "a.safetensors",
      {{"", "it has 0 bytes; the header's length takes 8"},
       {"1234567", "it has 7 bytes"},
       {huge, "its header claims 18446744073709551615 bytes; accepted: at most 100000000"},
       {long_header, "is cut off; the file has"},
       {raw(f), "its header is unreadable at byte"},
       {raw(f + "} x"), "accepted: the end of the text"},
       {raw("[]"), "accepted: an object {...}"},
       {raw(""), "accepted: an object {...}"},
       {raw(R"({"a": )" + deep), "its header is unreadable"},
       {raw(R"({"a": {"dtype": "F32", "shape": [2]}})"), "lacks dtype, shape or two data_offsets"},
       {raw(R"({"a": {"dtype": "F32", "shape": [2], "data_offsets": [8]}})"),
        "or two data_offsets"},
       {raw(R"({"a": {"dtype": "F32", "shape": [2], "data_offsets": [0, 8, 9]}})"), "too many"},
       {raw(R"({"a": {"dtype": "F8_E4M3", "shape": [8], "data_offsets": [0, 8]}})"),
        "has dtype F8_E4M3; accepted: F64, F32, F16, BF16"},
       {raw(R"({"a": {"dtype": "F32", "shape": [-2], "data_offsets": [0, 8]}})"),
        "accepted: a whole number from 0"},
       {raw(R"({"a": {"dtype": "F32", "shape": [2.0], "data_offsets": [0, 8]}})"), "unreadable"},
       {raw(R"({"a": {"dtype": "F32", "shape": [9223372036854775808], "data_offsets": [0, 8]}})"),
        "accepted: a whole number from 0 to 2^63 - 1"},
       {raw(R"({"a": {"dtype": "F32", "shape": [4294967296, 4294967296], "data_offsets": [0, 0]}})"),
        "needs 2^40 and more"},
       {raw(R"({"a": {"dtype": "F32", "shape": [3], "data_offsets": [0, 8]}})"),
        "tensor \"a\" has data_offsets [0, 8] but its shape (3,) of F32 needs 12 bytes"},
       {raw(R"({"a": {"dtype": "F32", "shape": [2], "data_offsets": [8, 0]}})"), "[8, 0] but"},
       {raw(R"({"a": {"dtype": "F32", "shape": [2], "data_offsets": [4, 12]}})"),
        "ends at byte 12 of the data, which has 8"},
       {raw(R"({"a": {"dtype": "U8", "shape": [4], "data_offsets": [0, 4]}})"),
        "4 bytes after its last tensor belong to none"},
       {raw(R"({"a": {"dtype": "U8", "shape": [4], "data_offsets": [4, 8]}})"),
        "leave a hole at byte 0"},
       {raw(f + R"(, "b": {"dtype": "U8", "shape": [4], "data_offsets": [4, 8]}})"),
        "its tensors overlap at byte 4"},
       {raw(f + ", " + f.substr(1) + "}"), "tensor \"a\" is there twice"},
       {raw(R"({"a": {"dtype": "F32", "dtype": "U8", "shape": [8], "data_offsets": [0, 8]}})"),
        "dtype is there twice"},
       {raw(R"({"a": {"dtype": "F32", "shape": [2], "data_offsets": [0, 8], "x": 1}})"),
        "accepted: dtype, shape, data_offsets"},
       {raw(R"({"__metadata__": {"k": "1", "k": "2"}})", 0), "__metadata__ has \"k\" twice"},
       {raw(R"({"__metadata__": {"k": 1}})", 0), "accepted: a string"},
       {raw(R"({"__metadata__": {}})", 0), "has no array; accepted: one and more"},
       {raw(R"({"\ud800": 1})"), "half a surrogate pair"},
       {raw(R"({"../a": {"dtype": "F32", "shape": [2], "data_offsets": [0, 8]}})"),
        "has an array named \"../a\"; accepted: letters, digits"},
       {raw(R"({"a": {"dtype": "F32", "shape": [], "data_offsets": [0, 4]}})", 4),
        "a has shape (); accepted: (examples, ...)"}});
}

TEST(HostileDataTest, Arrays) {
  const auto tensors = [](const Tensors& given) { return SafetensorsBytes(given); };
  const auto one = [&](const std::string& type, const std::string& bytes) {
    return tensors({{"image", {type, {2, 2}, bytes}}});
  };
  ExpectFaults(
      Kind::kArrays, "a.safetensors",
      {{one("F32", Floats({0, 1, NAN, 3})), "image[1, 0] is nan; every value must be finite"},
       {one("F64", RawBytes<double>({0, 1, 2, -INFINITY})), "image[1, 1] is -inf"},
       {one("F16", RawBytes<uint16_t>({0, 0x7C00, 0, 0})), "image[0, 1] is inf"},
       {one("BF16", RawBytes<uint16_t>({0x7FC0, 0, 0, 0})), "image[0, 0] is nan"},
       {one("F16", RawBytes<uint16_t>({0, 0x7BFF, 0x8001, 0xFBFF})), "it was accepted"},
       {one("BOOL", std::string("\x01\x00\x02\x00", 4)), "image[1, 0] has the byte 2"},
       {tensors({{"a", {"U8", {2}, "ab"}}, {"b", {"U8", {3}, "abc"}}}),
        "b has 3 examples; accepted, because a has 2: 2"},
       {tensors({{"a", {"U8", {1}, "a"}}}), "at least 2 examples"},
       {tensors({{"a", {"U8", {2, 0}, ""}}}), "a has shape (2, 0)"}});
  ExpectFaults(Kind::kArrays, "a.npy",
               {{"", "image is not a NumPy array"},
                {NpyBytes("<f4", "(2,)", Floats({1, NAN})), "image[1] is nan"},
                {NpyBytes("<f4", "(2,)", Floats({1, 2})) + "x", "holds 9 bytes"}});
  ExpectFaults(Kind::kArrays, "a.npz",
               {{ZipBytes({{"../a.npy", NpyBytes("|u1", "(2,)", "ab")}}), "named \"../a\""},
                {ZipBytes({{"readme", "hello"}}),
                 "has no array \"readme\", which is the member \"readme.npy\""}});
}

TEST(HostileDataTest, Jsonl) {
  const std::string line = SpiralLines(2, 4).substr(0, SpiralLines(2, 4).find('\n') + 1);
  const auto edit = [&line](const std::string& from, const std::string& to) {
    const std::string changed = absl::StrReplaceAll(line, {{from, to}});
    EXPECT_NE(changed, line) << from;
    return line + changed +
           absl::StrReplaceAll(line, {{"\"timeout\": false", "\"timeout\": true"}}) + line + line;
  };
  ExpectFaults(
      Kind::kTrajectories, "a.jsonl",
      {{"", "is empty; accepted: one transition per line"},
       {"\n", "line 1 is not a transition in JSON at byte 0: accepted: an object"},
       {line + "\n" + line, "line 2 is not a transition in JSON"},
       {line + "{}\n", "line 2 has no observation"},
       {edit("\"reward\"", "\"Reward\""), "line 2 has no reward"},
       {edit("\"reward\"", "\"action\""), "action is there twice"},
       {edit("\"observation\": [", "\"observation\": [NaN, "), "observation has 3 numbers"},
       {edit("\"reward\": 1", "\"reward\": NaN, \"x\": 1"),
        "line 2: reward is nan (episode 0, step 1)"},
       {edit("\"reward\": 1", "\"reward\": -Infinity, \"x\": 1"), "line 2: reward is -inf"},
       {edit("\"reward\": 1", "\"reward\": 1e999, \"x\": 1"), "line 2: reward is inf"},
       {edit("\"reward\": 1", "\"reward\": 1e39, \"x\": 1"), "line 2: reward is 1e+39"},
       {edit("\"reward\": 1", "\"reward\": nan, \"x\": 1"), "accepted: a number"},
       {edit("\"reward\": 1", "\"reward\": 01, \"x\": 1"), "accepted: a number"},
       {edit("\"reward\": 1", "\"reward\": \"1\", \"x\": 1"), "accepted: a number"},
       {edit("\"action\": [0]", "\"action\": 1"),
        "action is the whole number 1; line 1 has a real"},
       {edit("\"timeout\": false", "\"timeout\": 2"), "accepted: true, false, 1 or 0"},
       {edit("\"timeout\": false", "\"timeout\": null"), "accepted: a whole number"},
       {edit("}", ""), "line 2 is not a transition in JSON"},
       {edit("{", "{\"x\": " + std::string(200, '[')), "nests too deep"},
       {absl::StrReplaceAll(line, {{"[0]", "3"}}) + line, "line 2: action is not a whole number"},
       {absl::StrReplaceAll(line, {{"[0]", "1024"}}), "line 1: action is 1024"},
       {absl::StrReplaceAll(line, {{"[0]", "-1"}}), "line 1: action is -1"},
       {absl::StrReplaceAll(line, {{"[0]", "[]"}}), "have no number"},
       {line + line, "has 1 episode; accepted: at least 2"}});
}

TEST(HostileDataTest, Tokens) {
  std::vector<uint16_t> tokens(20, 7);
  tokens[13] = 300;
  ExpectFaults(Kind::kTokens, "a.bin",
               {{"", "has 0 tokens; accepted: at least 9"},
                {std::string(16, '\0'), "has 8 tokens; accepted: at least 9, which make one"},
                {std::string(33, '\0'), "has 33 bytes; accepted: a multiple of 2"},
                {RawBytes(tokens),
                 "token 13 is 300; accepted: 0 to 299, because "
                 "model.transformer.vocabulary_size is 300"}});
}

TEST(HostileDataTest, WhatIsNoFile) {
  const TempDir folder;
  const auto fault = [&](const std::string& name) {
    return std::string(Open(Kind::kArrays, folder.path() + "/" + name).status().message());
  };
  EXPECT_THAT(fault("none.npy"), HasSubstr("cannot be opened: No such file"));
  std::filesystem::create_directory(folder.path() + "/folder.npy");
  EXPECT_THAT(fault("folder.npy"), HasSubstr("is not a regular file"));
  // Opening a named pipe without a writer would normally block.
  ASSERT_EQ(mkfifo((folder.path() + "/pipe.npz").c_str(), 0600), 0);
  EXPECT_THAT(fault("pipe.npz"), HasSubstr("is not a regular file"));
  // Links in job files are resolved at the start of a run (ResolveJobFiles), so none is expected.
  std::filesystem::create_symlink("/dev/null", folder.path() + "/link.npz");
  EXPECT_THAT(fault("link.npz"), HasSubstr("is a link; accepted: a regular file"));
}

// A valid file that is truncated anywhere must be refused.
TEST(HostileDataTest, EveryTruncation) {
  const std::tuple<Kind, const char*, std::string> samples[] = {
      {Kind::kTrajectories, "a.npz", ZipBytes(SpiralRecords(2, 4))},
      {Kind::kTrajectories, "a.safetensors", SafetensorsBytes(SpiralTensors(2, 4))},
      {Kind::kArrays, "a.npy", NpyBytes("<f4", "(2, 2)", Floats({1, 2, 3, 4}))}};
  const TempDir folder;
  for (const auto& [kind, name, bytes] : samples) {
    const std::string path = folder.path() + "/" + name;
    folder.Write(name, bytes);
    EXPECT_TRUE(Open(kind, path).ok()) << name;
    for (size_t size = bytes.size(); size-- > 0;) {
      std::filesystem::resize_file(path, size);
      EXPECT_FALSE(Open(kind, path).ok()) << name << size;
    }
  }
}

// A randomly changed file must be refused or contain only finite numbers.
TEST(HostileDataTest, SurvivesMutations) {
  std::vector<uint16_t> tokens(40, 7);
  const Records maps = {
      {"image.npy", NpyBytes("<f4", "(3, 1, 2, 2)", Floats(std::vector<float>(12, 1)))}};
  const std::tuple<Kind, const char*, std::string> samples[] = {
      {Kind::kTrajectories, "a.npz", ZipBytes(SpiralRecords(3, 4))},
      {Kind::kTrajectories, "b.npz", ZipBytes(SpiralRecords(3, 4), true)},
      {Kind::kTrajectories, "a.safetensors", SafetensorsBytes(SpiralTensors(3, 4))},
      {Kind::kTrajectories, "a.jsonl", SpiralLines(3, 4)},
      {Kind::kTokens, "a.bin", RawBytes(tokens)},
      {Kind::kArrays, "a.npz", ZipBytes(maps)},
      {Kind::kArrays, "a.npy", maps.at("image.npy")}};
  const TempDir folder;
  std::mt19937_64 random(20240);
  const std::string words[] = {"NaN",
                               "Infinity",
                               "-1",
                               "1e400",
                               "[",
                               "{\"",
                               "99999999999999999999",
                               "\\ud800",
                               std::string(8, '\xFF'),
                               std::string(4, '\0'),
                               "\n"};
  for (const auto& [kind, name, sound] : samples) {
    int refused = 0;
    for (int i = 0; i < 2500; ++i) {
      std::string bytes = sound;
      for (uint64_t n = 1 + random() % 3; n > 0 && !bytes.empty(); --n) {
        const size_t at = random() % bytes.size();
        switch (random() % 7) {
          case 0:
            bytes[at] = static_cast<char>(random());
            break;
          case 1:
            bytes[at] = static_cast<char>(bytes[at] ^ (1 << random() % 8));
            break;
          case 2:
            bytes.erase(at, 1 + random() % 9);
            break;
          case 3:
            bytes.insert(at, words[random() % std::size(words)]);
            break;
          case 4:  // Duplicates a part of the file.
            bytes.insert(at, bytes.substr(random() % bytes.size(), 1 + random() % 60));
            break;
          case 5: {  // The head of one and the tail of another file.
            const std::string& other = std::get<2>(samples[random() % std::size(samples)]);
            bytes = bytes.substr(0, at) + other.substr(random() % other.size());
            break;
          }
          default:
            bytes.replace(at, words[0].size(), words[random() % std::size(words)]);
        }
      }
      std::filesystem::remove(folder.path() + "/" + name);  // Faster than truncating it.
      folder.Write(name, bytes);
      const auto dataset = Open(kind, folder.path() + "/" + name);
      if (!dataset.ok()) {
        ++refused;
        ASSERT_TRUE(IsUtf8(dataset.status().message())) << name << i;
        ASSERT_LE(dataset.status().message().size(), kMaxFileFault) << name << i;
        continue;
      }
      const std::vector<std::string> columns = GatherAll(**dataset, AllExamples(**dataset));
      for (size_t f = 0; f < columns.size(); ++f) {
        const Field& field = (*dataset)->fields()[f];
        const auto count = static_cast<int64_t>(columns[f].size()) / ElementSize(field.type);
        ASSERT_EQ(FirstNonFinite(field.type, columns[f].data(), count), -1) << name << i;
      }
    }
    EXPECT_GT(refused, 50) << name;
  }
}

}  // namespace
}  // namespace genesis

#ifndef GENESIS_SANITIZED
namespace {
// Limits the address space to 768 MiB, because a wrong length must not become an allocation.
[[maybe_unused]] const int kMemoryIsBounded = [] {
  const rlimit limit{uint64_t{768} << 20, uint64_t{768} << 20};
  return setrlimit(RLIMIT_AS, &limit);
}();
}  // namespace
#endif
