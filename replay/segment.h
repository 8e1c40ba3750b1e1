#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/types/span.h"

// The files of a replay buffer. All numbers are little-endian; every checksum is CRC-32C.
//
//   FOLDER/lock                       held by the one writer (flock)
//   FOLDER/<first>.segment            transitions, appended to; <first> is the number of its first
//                                     transition, 20 digits
//   FOLDER/<first>.index              offsets of the records of a finished segment; can be
//                                     rebuilt from the segment (segment_index.h)
//   FOLDER/capacity                   maximum number of transitions, in digits; exists only if
//                                     the daemon appends (server/datasets)
//
// Transitions are numbered from 0 in the order of appending and keep their numbers when older ones
// are evicted. A segment is
//
//   header, 64 bytes:  "GNSRPLY1", version u32 = 1, observation_size u32, action_size u32, 0 u32,
//                      first u64, 0 (28 bytes), checksum of the 60 bytes before u32
//   records, each:     one appended batch
//     header, 40 bytes:  "RECD" u32, checksum of the 32 bytes after it u32, first u64, count u32,
//                        id_size u32, body_size u64, checksum of the body u32, 0 u32
//     body:              the batch id, filled with 0 to a multiple of 8 bytes, then count rows
//   row:               observation f32 [O], action f32 [A], next_observation f32 [O], reward f32,
//                      priority f32 (0: none), flags u32 (1: terminal, 2: timeout)
//
// A batch is acknowledged once its record is synced. A record that a crash cut off is the last of
// the last segment and was not acknowledged, so the next writer removes it. A corrupt record before
// a valid one is damage, which is never repaired automatically.
//
// An episode is a run of transitions up to one with a flag. Concurrent recorders append whole
// episodes.
namespace genesis {

inline constexpr uint64_t kSegmentHeaderSize = 64;
inline constexpr uint64_t kRecordHeaderSize = 40;
inline constexpr uint32_t kMaxReplayColumns = 1 << 20;
inline constexpr uint32_t kMaxBatchId = 255;
inline constexpr uint32_t kMaxBatchTransitions = 1 << 20;
inline constexpr uint64_t kMaxBatchBytes = uint64_t{1} << 30;

// Sizes that all transitions of a buffer share.
struct ReplayLayout {
  int64_t observation_size = 0;
  int64_t action_size = 0;

  uint64_t row_bytes() const {
    return static_cast<uint64_t>(2 * observation_size + action_size + 3) * 4;
  }
  bool operator==(const ReplayLayout&) const = default;
};

struct ReplayTransition {
  std::vector<float> observation, action, next_observation;
  float reward = 0;
  bool terminal = false;  // The environment ended the episode.
  bool timeout = false;   // The recording of the episode was cut off.
  std::optional<float> priority;
};

// The numbers of a row other than observations and actions.
struct ReplayRowEnd {
  float reward = 0;
  float priority = 0;
  uint32_t flags = 0;
};
inline constexpr uint32_t kTerminalFlag = 1;
inline constexpr uint32_t kTimeoutFlag = 2;

struct SegmentHeader {
  ReplayLayout layout;
  uint64_t first = 0;
};

// The header of a record, its batch ID and its position in the segment.
struct RecordEntry {
  uint64_t offset = 0;  // Offset of its header.
  uint64_t body_size = 0;
  uint32_t body_checksum = 0;
  uint64_t first = 0;
  uint32_t count = 0;
  uint32_t id_size = 0;
  std::string id;

  uint64_t rows_offset() const { return offset + kRecordHeaderSize + (id_size + 7) / 8 * 8; }
  uint64_t end() const { return offset + kRecordHeaderSize + body_size; }
};

std::string SegmentName(uint64_t first);
// Returns the number in a segment's name, or nullopt for another file.
std::optional<uint64_t> SegmentFirst(const std::string& name);

std::string EncodeSegmentHeader(const SegmentHeader& header);
// Returns nullopt unless the 64 bytes are a header of version 1. Sets `version`; 0 if damaged.
std::optional<SegmentHeader> DecodeSegmentHeader(const char* bytes, uint32_t& version);

// Encodes the body of a record. Requires transitions that CheckTransitions accepts.
std::string EncodeBody(const std::string& id, absl::Span<const ReplayTransition> transitions);
std::string EncodeRecordHeader(const RecordEntry& record);
// Returns nullopt if the 40 bytes are not a header or its sizes disagree with `layout`.
std::optional<RecordEntry> DecodeRecordHeader(const char* bytes, const ReplayLayout& layout);

// Returns INVALID_ARGUMENT if a transition has other sizes, a value that is not finite or a
// priority that is not above 0. The message names the transition, the value and the accepted range.
absl::Status CheckTransitions(const ReplayLayout& layout,
                              absl::Span<const ReplayTransition> transitions);

}  // namespace genesis
