#include "replay/segment.h"

#include <cstring>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/strip.h"
#include "base/files/crc32c.h"

namespace genesis {
namespace {

constexpr char kMagic[] = "GNSRPLY1";
constexpr uint32_t kVectors = 1;  // Version of a header with two sizes.
constexpr uint32_t kDeclared = 2;
constexpr uint32_t kRecordMagic = 0x44434552;  // "RECD"
constexpr size_t kNameDigits = 20;
constexpr char kEnding[] = ".segment";

template <typename T>
void Put(std::string& bytes, T value) {
  bytes.append(reinterpret_cast<const char*>(&value), sizeof(T));
}

template <typename T>
T Get(const char* bytes, size_t offset) {
  T value;
  std::memcpy(&value, bytes + offset, sizeof(T));
  return value;
}

// Returns the layout of version 1.
std::optional<ReplayLayout> VectorLayout(uint32_t observation_size, uint32_t action_size) {
  const auto is_size = [](uint32_t size) { return size >= 1 && size <= kMaxVectorSize; };
  if (!is_size(observation_size) || !is_size(action_size)) return std::nullopt;
  return ReplayLayout::OfVectors(observation_size, action_size);
}

// Returns the layout of the declaration that follows the header in `bytes`.
std::optional<ReplayLayout> DeclaredLayout(absl::string_view bytes, uint32_t size,
                                           uint32_t checksum) {
  if (size > kMaxDeclaration || bytes.size() < kSegmentHeaderSize + size) return std::nullopt;
  const absl::string_view declaration = bytes.substr(kSegmentHeaderSize, size);
  if (Crc32c(0, declaration.data(), size) != checksum) return std::nullopt;
  return ReplayLayout::Parse(declaration);
}

}  // namespace

std::string SegmentName(uint64_t first) { return absl::StrFormat("%020u%s", first, kEnding); }

std::optional<uint64_t> SegmentFirst(const std::string& name) {
  absl::string_view digits = name;
  uint64_t first = 0;
  if (!absl::ConsumeSuffix(&digits, kEnding) || digits.size() != kNameDigits) return std::nullopt;
  if (!absl::SimpleAtoi(digits, &first) || SegmentName(first) != name) return std::nullopt;
  return first;
}

std::string EncodeSegmentHeader(const SegmentHeader& header) {
  const ReplayLayout& layout = header.layout;
  const std::string declaration = layout.is_vectors() ? "" : layout.Describe();
  std::string bytes(kMagic, 8);
  if (layout.is_vectors()) {
    Put(bytes, kVectors);
    Put(bytes, static_cast<uint32_t>(layout.columns()[0].shape[0]));
    Put(bytes, static_cast<uint32_t>(layout.columns()[1].shape[0]));
  } else {
    Put(bytes, kDeclared);
    Put(bytes, static_cast<uint32_t>(declaration.size()));
    Put(bytes, Crc32c(0, declaration.data(), declaration.size()));
  }
  Put(bytes, uint32_t{0});
  Put(bytes, header.first);
  bytes.resize(kSegmentHeaderSize - sizeof(uint32_t));
  Put(bytes, Crc32c(0, bytes.data(), bytes.size()));
  bytes += declaration;
  bytes.resize((bytes.size() + 7) / 8 * 8);
  return bytes;
}

std::optional<SegmentHeader> DecodeSegmentHeader(absl::string_view bytes, uint32_t& version) {
  version = 0;
  constexpr size_t kChecked = kSegmentHeaderSize - sizeof(uint32_t);
  if (bytes.size() < kSegmentHeaderSize || !absl::StartsWith(bytes, kMagic) ||
      Crc32c(0, bytes.data(), kChecked) != Get<uint32_t>(bytes.data(), kChecked)) {
    return std::nullopt;
  }
  version = Get<uint32_t>(bytes.data(), 8);
  const auto first_size = Get<uint32_t>(bytes.data(), 12);
  const auto second = Get<uint32_t>(bytes.data(), 16);
  std::optional<ReplayLayout> layout;
  if (version == kVectors) layout = VectorLayout(first_size, second);
  if (version == kDeclared) layout = DeclaredLayout(bytes, first_size, second);
  if (!layout) return std::nullopt;
  const uint64_t declared = version == kDeclared ? first_size : 0;
  return SegmentHeader{.layout = *std::move(layout),
                       .first = Get<uint64_t>(bytes.data(), 24),
                       .size = kSegmentHeaderSize + (declared + 7) / 8 * 8};
}

std::string EncodeRecordHeader(const RecordEntry& record) {
  std::string checked;
  Put(checked, record.first);
  Put(checked, record.count);
  Put(checked, record.id_size);
  Put(checked, record.body_size);
  Put(checked, record.body_checksum);
  Put(checked, record.part);
  std::string bytes;
  Put(bytes, kRecordMagic);
  Put(bytes, Crc32c(0, checked.data(), checked.size()));
  return bytes + checked;
}

std::optional<RecordEntry> DecodeRecordHeader(const char* bytes, const ReplayLayout& layout) {
  constexpr size_t kChecked = 8;
  if (Get<uint32_t>(bytes, 0) != kRecordMagic) return std::nullopt;
  const uint32_t checksum = Crc32c(0, bytes + kChecked, kRecordHeaderSize - kChecked);
  if (Get<uint32_t>(bytes, 4) != checksum) return std::nullopt;
  const RecordEntry record{.body_size = Get<uint64_t>(bytes, 24),
                           .body_checksum = Get<uint32_t>(bytes, 32),
                           .first = Get<uint64_t>(bytes, 8),
                           .count = Get<uint32_t>(bytes, 16),
                           .id_size = Get<uint32_t>(bytes, 20),
                           .part = Get<uint32_t>(bytes, 36),
                           .id = {}};
  const uint64_t rows_end = record.rows_offset() + record.count * layout.row_bytes();
  const uint64_t smallest = rows_end + (0 - rows_end) % 4;
  const bool fits = layout.has_variable() ? record.end() >= smallest && record.end() % 4 == 0
                                          : record.end() == smallest;
  const bool sane = record.id_size >= 1 && record.id_size <= kMaxBatchId && record.count >= 1 &&
                    record.count <= kMaxBatchTransitions && record.body_size <= kMaxBatchBytes &&
                    fits;
  if (!sane) return std::nullopt;
  return record;
}

}  // namespace genesis
