#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/statusor.h"
#include "replay/file.h"
#include "replay/segment.h"

namespace genesis {

// The content of a segment.
struct SegmentScan {
  SegmentHeader header;
  std::vector<RecordEntry> records;
  uint64_t sound_size = 0;  // Bytes up to the end of the last valid record.
  uint64_t torn_size = 0;   // Bytes after them, of an unfinished record.

  int64_t transitions() const {
    return records.empty() ? 0
                           : static_cast<int64_t>(records.back().first + records.back().count -
                                                  records.front().first);
  }
};

// A callback for each valid record and its rows.
using RowsVisitor = absl::FunctionRef<void(const RecordEntry& record, const std::string& body)>;

// Reads a whole segment and verifies every checksum. `last` allows a torn record at its end.
// DATA_LOSS for damage, with the file and the byte.
absl::StatusOr<SegmentScan> ScanSegment(const ReplayFile& file, bool last, RowsVisitor visit);

// Reads on from the end of the last valid record, to which `scan` moves. Failure: as ScanSegment.
absl::Status ContinueScan(const ReplayFile& file, bool last, RowsVisitor visit, SegmentScan& scan);

// Reads the header only and compares it with the file's name.
absl::StatusOr<SegmentHeader> ReadSegmentHeader(const ReplayFile& file);

// Returns the numbers in the names of a folder's segments, in ascending order.
absl::StatusOr<std::vector<uint64_t>> ListSegments(const std::string& folder);

}  // namespace genesis
