#include "replay/segment.h"

#include <cmath>
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
constexpr uint32_t kVersion = 1;
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

void PutFloats(std::string& bytes, const std::vector<float>& values) {
  bytes.append(reinterpret_cast<const char*>(values.data()), values.size() * sizeof(float));
}

std::string NumberText(float value) { return std::isnan(value) ? "nan" : absl::StrCat(value); }

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
  std::string bytes(kMagic, 8);
  Put(bytes, kVersion);
  Put(bytes, static_cast<uint32_t>(header.layout.observation_size));
  Put(bytes, static_cast<uint32_t>(header.layout.action_size));
  Put(bytes, uint32_t{0});
  Put(bytes, header.first);
  bytes.resize(kSegmentHeaderSize - sizeof(uint32_t));
  Put(bytes, Crc32c(0, bytes.data(), bytes.size()));
  return bytes;
}

std::optional<SegmentHeader> DecodeSegmentHeader(const char* bytes, uint32_t& version) {
  version = 0;
  if (std::memcmp(bytes, kMagic, 8) != 0) return std::nullopt;
  constexpr size_t kChecked = kSegmentHeaderSize - sizeof(uint32_t);
  if (Crc32c(0, bytes, kChecked) != Get<uint32_t>(bytes, kChecked)) return std::nullopt;
  version = Get<uint32_t>(bytes, 8);
  const SegmentHeader header{.layout = {.observation_size = Get<uint32_t>(bytes, 12),
                                        .action_size = Get<uint32_t>(bytes, 16)},
                             .first = Get<uint64_t>(bytes, 24)};
  const bool sane = version == kVersion && header.layout.observation_size >= 1 &&
                    header.layout.observation_size <= kMaxReplayColumns &&
                    header.layout.action_size >= 1 &&
                    header.layout.action_size <= kMaxReplayColumns;
  if (!sane) return std::nullopt;
  return header;
}

std::string EncodeBody(const std::string& id, absl::Span<const ReplayTransition> transitions) {
  std::string bytes = id;
  bytes.resize((id.size() + 7) / 8 * 8);
  for (const ReplayTransition& transition : transitions) {
    PutFloats(bytes, transition.observation);
    PutFloats(bytes, transition.action);
    PutFloats(bytes, transition.next_observation);
    const ReplayRowEnd end{.reward = transition.reward,
                           .priority = transition.priority.value_or(0),
                           .flags = (transition.terminal ? kTerminalFlag : 0) |
                                    (transition.timeout ? kTimeoutFlag : 0)};
    Put(bytes, end);
  }
  return bytes;
}

std::string EncodeRecordHeader(const RecordEntry& record) {
  std::string checked;
  Put(checked, record.first);
  Put(checked, record.count);
  Put(checked, record.id_size);
  Put(checked, record.body_size);
  Put(checked, record.body_checksum);
  Put(checked, uint32_t{0});
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
                           .id = {}};
  const bool sane = record.id_size >= 1 && record.id_size <= kMaxBatchId && record.count >= 1 &&
                    record.count <= kMaxBatchTransitions && record.body_size <= kMaxBatchBytes &&
                    record.rows_offset() + record.count * layout.row_bytes() == record.end();
  if (!sane) return std::nullopt;
  return record;
}

absl::Status CheckTransitions(const ReplayLayout& layout,
                              absl::Span<const ReplayTransition> transitions) {
  for (size_t i = 0; i < transitions.size(); ++i) {
    const std::string place = absl::StrCat("transition ", i, ": ");
    const ReplayTransition& transition = transitions[i];
    const auto check = [&](const char* name, const std::vector<float>& values, int64_t want) {
      if (static_cast<int64_t>(values.size()) != want) {
        return absl::InvalidArgumentError(absl::StrCat(
            place, name, " has ", values.size(), " numbers; accepted in this buffer: ", want));
      }
      for (size_t column = 0; column < values.size(); ++column) {
        if (std::isfinite(values[column])) continue;
        return absl::InvalidArgumentError(absl::StrCat(place, name, "[", column, "] is ",
                                                       NumberText(values[column]),
                                                       "; every value must be finite"));
      }
      return absl::OkStatus();
    };
    absl::Status status = check("observation", transition.observation, layout.observation_size);
    status.Update(check("action", transition.action, layout.action_size));
    status.Update(check("next_observation", transition.next_observation, layout.observation_size));
    if (!status.ok()) return status;
    if (!std::isfinite(transition.reward)) {
      return absl::InvalidArgumentError(absl::StrCat(
          place, "reward is ", NumberText(transition.reward), "; every value must be finite"));
    }
    const float priority = transition.priority.value_or(1);
    if (!std::isfinite(priority) || priority <= 0) {
      return absl::InvalidArgumentError(absl::StrCat(place, "priority is ", NumberText(priority),
                                                     "; accepted: a finite number > 0, or none"));
    }
  }
  return absl::OkStatus();
}

}  // namespace genesis
