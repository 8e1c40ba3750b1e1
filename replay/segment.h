#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "absl/strings/string_view.h"
#include "replay/layout.h"

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
//   header, 64 bytes:  "GNSRPLY1", version u32, of the layout 2 x u32, 0 u32, first u64,
//                      0 (28 bytes), checksum of the 60 bytes before u32
//     version 1:         layout: observation_size O, action_size A. The columns are observations
//                        float32 [O], actions float32 [A] and next_observations float32 [O]
//     version 2:         layout: size of the declaration, checksum of the declaration. The
//                        declaration follows the header, filled with 0 to a multiple of 8 bytes. It
//                        is text with one line per column: "observations uint8 [64, 64, 3]", or for
//                        0 to 512 values per transition "tokens int32 [<=512]"
//   records, each:     one appended batch, or one part of it
//     header, 40 bytes:  "RECD" u32, checksum of the 32 bytes after it u32, first u64, count u32,
//                        id_size u32, body_size u64, checksum of the body u32, part u32
//     body:              the batch id, filled with 0 to a multiple of 8 bytes, then count rows,
//                        then the variable values, row after row, filled with 0 to a multiple of 4
//   row:               the columns in the order of ReplayLayout, without gaps: values in C order;
//                      of a variable column offset u32 from the end of the record's rows, bytes
//                      u32. Then reward f32, priority f32 (0: none), flags u32 (1: terminal,
//                      2: timeout)
//
// The parts of a batch are successive records with its id: part is 2 x (number of the part) + (1 if
// another part follows), so 0 for a batch of one record. A batch exists once its last part does.
//
// A batch is acknowledged once its records are synced. Records that a crash cut off are the last
// batch of the last segment and were not acknowledged, so the next writer removes them. A corrupt
// record before a later valid batch is damage, which is never repaired automatically.
//
// An episode is a run of transitions up to one with a flag. Concurrent recorders append whole
// episodes.
namespace genesis {

inline constexpr uint64_t kSegmentHeaderSize = 64;  // Without the declaration.
inline constexpr uint64_t kRecordHeaderSize = 40;
// kMaxColumns lines of the longest name and kMaxColumnDimensions + 1 sizes.
inline constexpr uint64_t kMaxDeclaration = 16 << 10;
inline constexpr uint32_t kMaxBatchId = 255;
inline constexpr uint32_t kMaxBatchTransitions = 1 << 20;
inline constexpr uint64_t kMaxBatchBytes = uint64_t{1} << 30;

struct SegmentHeader {
  ReplayLayout layout;
  uint64_t first = 0;
  uint64_t size = 0;  // Bytes before the first record. Ignored by EncodeSegmentHeader.
};

// The header of a record, its batch ID and its position in the segment.
struct RecordEntry {
  uint64_t offset = 0;  // Offset of its header.
  uint64_t body_size = 0;
  uint32_t body_checksum = 0;
  uint64_t first = 0;
  uint32_t count = 0;
  uint32_t id_size = 0;
  uint32_t part = 0;
  std::string id;

  bool continues() const { return (part & 1) != 0; }
  uint64_t rows_offset() const { return offset + kRecordHeaderSize + (id_size + 7) / 8 * 8; }
  uint64_t end() const { return offset + kRecordHeaderSize + body_size; }
};

std::string SegmentName(uint64_t first);
// Returns the number in the file name of a segment, or nullopt for another file name.
std::optional<uint64_t> SegmentFirst(const std::string& name);

std::string EncodeSegmentHeader(const SegmentHeader& header);
// Returns nullopt unless `bytes` begins with a header of version 1 or 2. Needs at most
// kSegmentHeaderSize + kMaxDeclaration bytes. Sets `version`, to 0 if the header is damaged.
std::optional<SegmentHeader> DecodeSegmentHeader(absl::string_view bytes, uint32_t& version);

std::string EncodeRecordHeader(const RecordEntry& record);
// Returns nullopt if the 40 bytes are not a header or its sizes disagree with `layout`.
std::optional<RecordEntry> DecodeRecordHeader(const char* bytes, const ReplayLayout& layout);

}  // namespace genesis
