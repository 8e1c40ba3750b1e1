#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "replay/file.h"
#include "replay/segment.h"

namespace genesis {

// The content of a segment.
struct SegmentScan {
  SegmentHeader header;
  std::vector<RecordEntry> records;
  uint64_t sound_size = 0;  // Bytes up to the end of the last record of a complete batch.
  uint64_t torn_size = 0;   // Bytes after that, which belong to an unfinished batch.

  // Returns the number that follows that of the last transition.
  uint64_t next() const {
    return records.empty() ? header.first : records.back().first + records.back().count;
  }
};

// A callback for each record of a complete batch and the ends of its rows.
using RowsVisitor =
    absl::FunctionRef<void(const RecordEntry& record, absl::Span<const ReplayRowEnd> ends)>;

// Reads a whole segment and verifies every checksum. If `last`, its end may be an unfinished batch.
// DATA_LOSS for damage, with the file and the byte.
absl::StatusOr<SegmentScan> ScanSegment(const ReplayFile& file, bool last, RowsVisitor visit);

// Resumes `scan` after its last complete batch, and advances it past each complete batch that
// follows. Returns the same errors as ScanSegment.
absl::Status ContinueScan(const ReplayFile& file, bool last, RowsVisitor visit, SegmentScan& scan);

// Reads the header only and compares it with the file's name.
absl::StatusOr<SegmentHeader> ReadSegmentHeader(const ReplayFile& file);

// Returns the columns of the buffer in a folder. NOT_FOUND if it has none.
absl::StatusOr<ReplayLayout> ReadReplayLayout(const std::string& folder);

// Returns the numbers in the names of a folder's segments, in ascending order.
absl::StatusOr<std::vector<uint64_t>> ListSegments(const std::string& folder);

}  // namespace genesis
