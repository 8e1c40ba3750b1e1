// Buffers with declared columns, and batches of several parts.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/resource.h>

#include <cmath>
#include <filesystem>
#include <fstream>
#include <limits>
#include <sstream>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "replay/segment_scan.h"
#include "tests/replay/transitions.h"
#include "tests/temp_dir.h"

namespace genesis {
namespace {

using testing::HasSubstr;

ReplayLayout Typed() {
  auto layout = ReplayLayout::Create(
      {{.name = "text", .type = ColumnFormat::kBytes, .max_length = 9},
       {.name = "observations", .type = ColumnFormat::kUint8, .shape = {2, 3}},
       {.name = "tokens", .type = ColumnFormat::kInt32, .shape = {2}, .max_length = 4},
       {.name = "advantage", .type = ColumnFormat::kFloat16},
       {.name = "mask", .type = ColumnFormat::kBool, .shape = {3}}});
  EXPECT_TRUE(layout.ok()) << layout.status();
  return *layout;
}

// The columns of transitions [first, first + count) of Typed. Every byte follows from the number.
struct Columns {
  std::string observations, advantage, mask, text, tokens;
  std::vector<uint32_t> text_lengths, token_lengths;
  std::vector<float> rewards;

  Columns(int first, int count) {
    for (int i = first; i < first + count; ++i) {
      for (int k = 0; k < 6; ++k) observations.push_back(static_cast<char>(i * 7 + k));
      advantage += std::string{static_cast<char>(i), '\x3C'};  // 1.something
      for (int k = 0; k < 3; ++k) mask.push_back(static_cast<char>((i >> k) & 1));
      text_lengths.push_back(static_cast<uint32_t>(i % 10));
      text.append(static_cast<size_t>(i % 10), static_cast<char>('a' + i % 26));
      token_lengths.push_back(static_cast<uint32_t>(i % 5));
      for (int32_t k = 0; k < 2 * (i % 5); ++k) {
        const int32_t token = 1000 * i + k;
        tokens.append(reinterpret_cast<const char*>(&token), sizeof(token));
      }
      rewards.push_back(static_cast<float>(i));
    }
  }

  // In the order of the layout.
  ReplayRows Rows() const {
    return {.columns = {{.values = observations},
                        {.values = advantage},
                        {.values = mask},
                        {.values = text, .lengths = text_lengths},
                        {.values = tokens, .lengths = token_lengths}},
            .rewards = rewards,
            .terminals = {},
            .timeouts = {},
            .priorities = {}};
  }
};

std::unique_ptr<ReplayWriter> OpenTyped(const std::string& folder, int64_t segment = 0) {
  auto writer = ReplayWriter::Open(
      folder, {.layout = Typed(), .capacity = 10000, .segment_transitions = segment});
  EXPECT_TRUE(writer.ok()) << writer.status();
  return writer.ok() ? *std::move(writer) : nullptr;
}

// Returns a batch with a part for each number of transitions.
ReplayBatch BatchOf(const TempDir& folder, const std::string& id, int first,
                    const std::vector<int>& parts) {
  ReplayBatch batch(id, folder.path());
  for (const int count : parts) {
    const Columns columns(first, count);
    EXPECT_TRUE(batch.Add(Typed(), columns.Rows()).ok());
    first += count;
  }
  return batch;
}

// Expects that the folder contains transitions [0, count) as Columns gives them.
void ExpectStored(const std::string& folder, int count) {
  const auto snapshot = ReplaySnapshot::Open(folder, [](uint64_t, const ReplayRowEnd&) {});
  ASSERT_TRUE(snapshot.ok()) << snapshot.status();
  ASSERT_EQ(snapshot->size(), count);
  ASSERT_EQ(snapshot->layout(), Typed());
  std::string row(snapshot->layout().row_bytes(), '\0');
  for (int i = 0; i < count; ++i) {
    const auto number = static_cast<uint64_t>(i);
    const Columns wanted(i, 1);
    ASSERT_TRUE(snapshot->Read(number, 1, row.data()).ok());
    EXPECT_EQ(row.substr(0, 11), wanted.observations + wanted.advantage + wanted.mask) << i;
    const auto variable = [&](size_t column) {
      VariableValue value;
      std::memcpy(&value, row.data() + snapshot->layout().offset(column), sizeof(value));
      std::string bytes(value.bytes, '\0');
      EXPECT_TRUE(snapshot->ReadValue(number, value, bytes.data()).ok());
      return bytes;
    };
    EXPECT_EQ(variable(3), wanted.text) << i;
    EXPECT_EQ(variable(4), wanted.tokens) << i;
    ReplayRowEnd end;
    std::memcpy(&end, row.data() + row.size() - sizeof(end), sizeof(end));
    EXPECT_EQ(end.reward, static_cast<float>(i));
  }
}

TEST(ReplayLayoutTest, IsTextInBothDirections) {
  constexpr char kText[] =
      "observations uint8 [2, 3]\nadvantage float16 []\nmask bool [3]\ntext bytes [<=9]\n"
      "tokens int32 [<=4, 2]\n";
  EXPECT_EQ(Typed().Describe(), kText);
  EXPECT_EQ(ReplayLayout::Parse(kText), Typed());
  EXPECT_EQ(Typed().row_bytes(), 6u + 2 + 3 + 8 + 8 + sizeof(ReplayRowEnd));
  for (const char* text : {"", "a uint8", "a uint9 []\n", "a uint8 []", "b uint8 []\na uint8 []\n",
                           "a uint8 [0]\n", "a uint8 [2 ,3]\n", "a  uint8 []\n"}) {
    EXPECT_FALSE(ReplayLayout::Parse(text)) << text;
  }
  EXPECT_TRUE(ReplayLayout::OfVectors(3, 1).is_vectors());
  EXPECT_FALSE(Typed().is_vectors());
}

TEST(ReplayLayoutTest, SaysWhatIsWrongWithADeclaration) {
  const auto fault = [](std::vector<ReplayColumn> columns) {
    return std::string(ReplayLayout::Create(std::move(columns)).status().message());
  };
  EXPECT_EQ(fault({}), "columns has 0 columns; accepted: 1 to 64");
  EXPECT_EQ(fault(std::vector<ReplayColumn>(65, {.name = "a"})),
            "columns has 65 columns; accepted: 1 to 64");
  EXPECT_THAT(fault({{.name = "A"}}), HasSubstr("column \"A\": accepted as a name: a lower-case"));
  EXPECT_THAT(fault({{.name = std::string(64, 'a')}}), HasSubstr("at most 63"));
  EXPECT_EQ(fault({{.name = "rewards"}}), "column rewards: is in every buffer; do not declare it");
  EXPECT_EQ(fault({{.name = "a"}, {.name = "a"}}), "column a: is declared twice; accepted: once");
  EXPECT_EQ(fault({{.name = "a", .shape = {3, 0}}}),
            "column a: has the size 0; accepted: 1 to 67108864");
  EXPECT_EQ(fault({{.name = "a", .shape = {1 << 20, 1 << 20}}}),
            "column a: float32 [1048576, 1048576] takes more than 67108864 bytes a transition; "
            "accepted: at most as many");
  EXPECT_EQ(fault({{.name = "a", .shape = std::vector<int64_t>(9, 1)}}),
            "column a: shape has 9 sizes; accepted: at most 8");
  EXPECT_EQ(fault({{.name = "a", .type = ColumnFormat::kBytes}}),
            "column a: is bytes []; accepted for bytes: no shape, and a max_length");
  EXPECT_EQ(fault({{.name = "a", .max_length = -1}}),
            "column a: has the size -1; accepted: 1 to 67108864");
  EXPECT_EQ(fault({{.name = "a", .shape = {1 << 24}}, {.name = "b", .shape = {1}}}),
            "the columns of fixed sizes take 67108868 bytes a transition; accepted: at most "
            "67108864");
}

TEST(TypedBufferTest, KeepsEveryColumnAcrossRecordsSegmentsAndOpenings) {
  const TempDir folder;
  int next = 0;
  for (int run = 0; run < 3; ++run) {
    const auto writer = OpenTyped(folder.path(), 40);
    ASSERT_NE(writer, nullptr);
    for (const int count : {1, 7, 30, 2}) {
      const auto done = writer->Append(BatchOf(folder, absl::StrCat(next), next, {count}));
      ASSERT_TRUE(done.ok()) << done.status();
      EXPECT_EQ(done->first, next);
      next += count;
    }
  }
  ExpectStored(folder.path(), next);
  const auto layout = ReadReplayLayout(folder.path());
  ASSERT_TRUE(layout.ok()) << layout.status();
  EXPECT_EQ(*layout, Typed());
}

TEST(TypedBufferTest, NamesTheColumnThatDiffers) {
  const TempDir folder;
  ASSERT_TRUE(OpenTyped(folder.path())->Append(BatchOf(folder, "a", 0, {2})).ok());
  const auto fault = [&](std::vector<ReplayColumn> columns) {
    const auto other =
        ReplayWriter::Open(folder.path(), {.layout = *ReplayLayout::Create(std::move(columns))});
    EXPECT_TRUE(absl::IsFailedPrecondition(other.status()));
    return std::string(other.status().message());
  };
  std::vector<ReplayColumn> columns = Typed().columns();
  columns[4].max_length = 5;
  EXPECT_EQ(
      fault(columns),
      folder.path() +
          ": column tokens is int32 [<=4, 2] in this buffer and int32 [<=5, 2] "
          "in the request; accepted: the same columns (in Python by columns=), or another buffer");
  columns.pop_back();
  EXPECT_THAT(fault(columns), HasSubstr("column tokens is int32 [<=4, 2] in this buffer and absent "
                                        "in the request"));
  columns = Typed().columns();
  columns.push_back({.name = "extra"});
  EXPECT_THAT(fault(columns),
              HasSubstr("column extra is absent in this buffer and float32 [] in the request"));
  std::reverse(columns.begin(), columns.end() - 1);
  columns.pop_back();
  EXPECT_TRUE(
      ReplayWriter::Open(folder.path(), {.layout = *ReplayLayout::Create(std::move(columns))})
          .ok());
}

TEST(TypedBufferTest, NamesTheColumnTheTransitionAndTheValue) {
  const auto fault = [](auto change) {
    Columns columns(0, 4);
    change(columns);
    const absl::Status status = CheckRows(Typed(), columns.Rows(), 10);
    EXPECT_TRUE(absl::IsInvalidArgument(status)) << status;
    return std::string(status.message());
  };
  EXPECT_EQ(fault([](Columns& c) { c.observations.pop_back(); }),
            "column observations has 23 bytes; accepted: 24 (4 transitions x 6 bytes of "
            "observations uint8 [2, 3])");
  EXPECT_EQ(fault([](Columns& c) { c.mask[7] = 2; }),
            "transition 12: mask[1] is 2; accepted for bool: 0 and 1");
  EXPECT_EQ(fault([](Columns& c) { c.advantage[3] = '\x7E'; }),
            "transition 11: advantage is nan; every value must be finite");
  EXPECT_EQ(fault([](Columns& c) { c.advantage.replace(4, 2, std::string("\0\xFC", 2)); }),
            "transition 12: advantage is -inf; every value must be finite");
  EXPECT_EQ(fault([](Columns& c) { c.token_lengths[2] = 5; }),
            "transition 12: tokens has length 5; accepted: 0 to 4");
  EXPECT_EQ(fault([](Columns& c) { c.token_lengths.pop_back(); }),
            "column tokens has 3 lengths; accepted: 4, one for each transition");
  EXPECT_EQ(fault([](Columns& c) { c.tokens += "x"; }),
            "column tokens has 49 bytes; accepted: 48 (its lengths are 6 in all x 8 bytes of "
            "tokens int32 [<=4, 2])");
}

TEST(TypedBufferTest, FindsANumberThatIsNotFiniteInEveryFormatAndPlace) {
  for (const ColumnFormat type : {ColumnFormat::kFloat16, ColumnFormat::kBfloat16,
                                  ColumnFormat::kFloat32, ColumnFormat::kFloat64}) {
    const uint64_t size = ColumnFormatSize(type);
    const auto layout = ReplayLayout::Create({{.name = "x", .type = type, .shape = {3000}}});
    const std::vector<float> rewards(3);
    for (const size_t place : {0, 1, 4095, 4096, 8999}) {
      for (const bool negative : {false, true}) {
        std::string values(9000 * size, '\0');
        // The sign and exponent, with a fraction of 0, are in the upper bytes.
        const uint64_t exponent = type == ColumnFormat::kFloat16    ? 0x7C00
                                  : type == ColumnFormat::kBfloat16 ? 0x7F80
                                  : type == ColumnFormat::kFloat32  ? 0x7F800000
                                                                    : 0x7FF0000000000000;
        const uint64_t bits = exponent | (negative ? uint64_t{1} << (8 * size - 1) : 0);
        std::memcpy(values.data() + place * size, &bits, size);
        const absl::Status status = CheckRows(*layout,
                                              {.columns = {{.values = values}},
                                               .rewards = rewards,
                                               .terminals = {},
                                               .timeouts = {},
                                               .priorities = {}},
                                              0);
        EXPECT_EQ(status.message(),
                  absl::StrCat("transition ", place / 3000, ": x[", place % 3000, "] is ",
                               negative ? "-inf" : "inf", "; every value must be finite"));
      }
    }
  }
}

TEST(TypedBufferTest, ABatchInPartsIsOneBatch) {
  const TempDir folder;
  {
    const auto writer = OpenTyped(folder.path());
    ASSERT_TRUE(writer->Append(BatchOf(folder, "a", 0, {3})).ok());
    const auto done = writer->Append(BatchOf(folder, "b", 3, {5, 1, 20}));
    ASSERT_TRUE(done.ok()) << done.status();
    EXPECT_EQ(done->first, 3);
    EXPECT_EQ(done->count, 26);
    ASSERT_TRUE(writer->Append(BatchOf(folder, "c", 29, {1})).ok());
  }
  ExpectStored(folder.path(), 30);
  const auto writer = OpenTyped(folder.path());
  EXPECT_TRUE(writer->Append(BatchOf(folder, "b", 3, {5, 1, 20}))->repeated);
  for (const std::vector<int>& other : {std::vector<int>{26}, {5, 1, 19}, {5, 1}}) {
    EXPECT_TRUE(absl::IsAlreadyExists(writer->Append(BatchOf(folder, "b", 3, other)).status()));
  }
  EXPECT_EQ(writer->size(), 30);
}

std::string SegmentBytes(const std::string& path) {
  std::ostringstream text;
  text << std::ifstream(path, std::ios::binary).rdbuf();
  return text.str();
}

// A segment with a batch of 3 transitions, then one of parts, and where the parts begin.
struct Parted {
  std::string segment;
  std::vector<size_t> begins;
};

Parted MakeParted() {
  const TempDir folder;
  const std::string path = folder.path() + "/" + SegmentName(0);
  const auto writer = OpenTyped(folder.path());
  EXPECT_TRUE(writer->Append(BatchOf(folder, "a", 0, {3})).ok());
  EXPECT_TRUE(writer->Append(BatchOf(folder, "b", 3, {2, 1, 2})).ok());
  Parted parted{.segment = SegmentBytes(path), .begins = {}};
  const auto file = ReplayFile::OpenToRead(path);
  const auto scan =
      ScanSegment(*file, true, [](const RecordEntry&, absl::Span<const ReplayRowEnd>) {});
  for (size_t i = 1; i < scan->records.size(); ++i) {
    parted.begins.push_back(scan->records[i].offset);
  }
  EXPECT_EQ(parted.begins.size(), 3u);
  return parted;
}

// Expects that the last batch does not exist, and that a writer removes and appends it.
void ExpectTorn(const std::string& segment) {
  const TempDir folder;
  folder.Write(SegmentName(0), segment);
  ExpectStored(folder.path(), 3);
  const auto writer = OpenTyped(folder.path());
  ASSERT_NE(writer, nullptr);
  EXPECT_EQ(writer->size(), 3);
  ASSERT_TRUE(writer->Append(BatchOf(folder, "b", 3, {2, 1, 2})).ok());
  ExpectStored(folder.path(), 8);
}

TEST(TypedBufferTest, ACrashAtAnyByteOfABatchInPartsLeavesNothingOfIt) {
  const Parted parted = MakeParted();
  for (size_t size = parted.begins[0]; size < parted.segment.size(); ++size) {
    ExpectTorn(parted.segment.substr(0, size));
  }
}

// A disk may have written a later part but not an earlier one.
TEST(TypedBufferTest, ACrashThatLosesAnEarlierPartLeavesNothingOfTheBatch) {
  const Parted parted = MakeParted();
  for (size_t part = 0; part < 3; ++part) {
    const size_t end = part < 2 ? parted.begins[part + 1] : parted.segment.size();
    std::string torn = parted.segment;
    torn.replace(parted.begins[part], end - parted.begins[part], end - parted.begins[part], '\0');
    ExpectTorn(torn);
  }
}

TEST(TypedBufferTest, DamageBeforeALaterBatchIsRefused) {
  Parted parted = MakeParted();
  {
    const TempDir folder;
    folder.Write(SegmentName(0), parted.segment);
    ASSERT_TRUE(OpenTyped(folder.path())->Append(BatchOf(folder, "c", 8, {1})).ok());
    parted.segment = SegmentBytes(folder.path() + "/" + SegmentName(0));
  }
  const size_t end = parted.segment.size() - 1;
  for (size_t at = 0; at < end; at += at < kSegmentHeaderSize + 200 ? 1 : 7) {
    const TempDir folder;
    std::string damaged = parted.segment;
    damaged[at] = static_cast<char>(damaged[at] ^ 0x10);
    folder.Write(SegmentName(0), damaged);
    const auto writer = ReplayWriter::Open(folder.path(), {.layout = Typed(), .capacity = 1000});
    const auto rewards = Rewards(folder.path());
    // Padding after the declaration is not checked. Damage of the last record is like a torn one.
    if (rewards.ok() && rewards->size() == 8) continue;
    if (rewards.ok() && rewards->size() == 9) {
      EXPECT_LT(at, kSegmentHeaderSize + Typed().Describe().size() + 8);
      EXPECT_GE(at, kSegmentHeaderSize + Typed().Describe().size());
      continue;
    }
    EXPECT_TRUE(absl::IsDataLoss(rewards.status())) << at << rewards.status();
    EXPECT_TRUE(absl::IsDataLoss(writer.status())) << at << writer.status();
  }
}

TEST(TypedBufferTest, AFullDiskInTheMiddleOfABatchLosesNothing) {
  const TempDir folder;
  const auto writer = OpenTyped(folder.path());
  ASSERT_TRUE(writer->Append(BatchOf(folder, "a", 0, {10})).ok());
  const auto size = std::filesystem::file_size(folder.path() + "/" + SegmentName(0));
  ReplayBatch batch = BatchOf(folder, "b", 10, {20, 20, 20});
  const rlimit unlimited{RLIM_INFINITY, RLIM_INFINITY};
  const rlimit full{size + 1500, RLIM_INFINITY};  // More than a part, less than all.
  signal(SIGXFSZ, SIG_IGN);
  ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &full), 0);
  const absl::Status refused = writer->Append(std::move(batch)).status();
  ReplayBatch spooled("c", folder.path());
  absl::Status status;
  const auto many = Columns(0, 5000);
  while (status.ok() && spooled.bytes() < 2 * ReplayBatch::kMaxHeldBytes) {
    status = spooled.Add(Typed(), many.Rows());
  }
  ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &unlimited), 0);
  EXPECT_TRUE(absl::IsResourceExhausted(refused)) << refused;
  EXPECT_TRUE(absl::IsResourceExhausted(status)) << status;
  ExpectStored(folder.path(), 10);
  EXPECT_EQ(std::filesystem::file_size(folder.path() + "/" + SegmentName(0)), size);
  ASSERT_TRUE(writer->Append(BatchOf(folder, "b", 10, {20, 20, 20})).ok());
  ExpectStored(folder.path(), 70);
}

TEST(TypedBufferTest, ABatchHasBounds) {
  const auto layout = ReplayLayout::Create({{.name = "x", .type = ColumnFormat::kUint8}});
  const std::string values(400'000, 'x');
  const std::vector<float> rewards(values.size());
  const TempDir folder;
  ReplayBatch batch("long", folder.path());
  const ReplayRows rows{.columns = {{.values = values}},
                        .rewards = rewards,
                        .terminals = {},
                        .timeouts = {},
                        .priorities = {}};
  ASSERT_TRUE(batch.Add(*layout, rows).ok());
  ASSERT_TRUE(batch.Add(*layout, rows).ok());
  EXPECT_EQ(batch.Add(*layout, rows).message(),
            "the batch has 1200000 transitions; accepted: at most 1048576");
}

}  // namespace
}  // namespace genesis
