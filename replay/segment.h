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
//   FOLDER/<first>.index              where the records of a finished segment begin; can be made
//                                     again from the segment (segment_index.h)
//   FOLDER/capacity                   transitions that the daemon keeps at most, in digits; only
//                                     where the daemon appends (server/datasets)
//
// Transitions are numbered from 0 in the order in which they were appended, and keep their numbers
// when older ones are evicted. A segment is
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
// the last segment and was not acknowledged; the next writer cuts it away. A broken record with a
// sound one after it is damage, which is never repaired by itself.
//
// An episode is a run of transitions up to one with a flag; recorders that run side by side append
// whole episodes.
namespace genesis {

inline constexpr uint64_t kSegmentHeaderSize = 64;
inline constexpr uint64_t kRecordHeaderSize = 40;
inline constexpr uint32_t kMaxReplayColumns = 1 << 20;
inline constexpr uint32_t kMaxBatchId = 255;
inline constexpr uint32_t kMaxBatchTransitions = 1 << 20;
inline constexpr uint64_t kMaxBatchBytes = uint64_t{1} << 30;

// The same for all transitions of a buffer.
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
  bool terminal = false;  // The episode reached an end of its own.
  bool timeout = false;   // The recording of it was ended.
  std::optional<float> priority;
};

// The numbers of a row that are neither observations nor actions.
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

// Where a record stands in its segment.
struct RecordEntry {
  uint64_t offset = 0;  // Of its header.
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
// The number in a segment's name; nullopt for another file.
std::optional<uint64_t> SegmentFirst(const std::string& name);

std::string EncodeSegmentHeader(const SegmentHeader& header);
// nullopt for 64 bytes that are none; `version` is what they claim.
std::optional<SegmentHeader> DecodeSegmentHeader(const char* bytes, uint32_t& version);

// The body of a record. Requires transitions of the layout.
std::string EncodeBody(const std::string& id, absl::Span<const ReplayTransition> transitions);
std::string EncodeRecordHeader(const RecordEntry& record);
// nullopt for 40 bytes that are none, or whose sizes disagree with `layout`.
std::optional<RecordEntry> DecodeRecordHeader(const char* bytes, const ReplayLayout& layout);

// INVALID_ARGUMENT when a transition has other sizes, a value that is not finite or a priority that
// is not above 0; the message names transition, value and what is accepted.
absl::Status CheckTransitions(const ReplayLayout& layout,
                              absl::Span<const ReplayTransition> transitions);

}  // namespace genesis
