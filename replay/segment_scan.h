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
  uint64_t sound_size = 0;  // Bytes up to the end of the last sound record.
  uint64_t torn_size = 0;   // Bytes after them, of a record that was never finished.

  int64_t transitions() const {
    return records.empty() ? 0
                           : static_cast<int64_t>(records.back().first + records.back().count -
                                                  records.front().first);
  }
};

// Called with each sound record and its rows.
using RowsVisitor = absl::FunctionRef<void(const RecordEntry& record, const std::string& body)>;

// Reads a segment from front to end and compares every checksum. `last` is whether it may end in a
// torn record. DATA_LOSS for damage, naming file and byte.
absl::StatusOr<SegmentScan> ScanSegment(const ReplayFile& file, bool last, RowsVisitor visit);

// Just the header, compared with the file's name.
absl::StatusOr<SegmentHeader> ReadSegmentHeader(const ReplayFile& file);

// Numbers in the names of the segments of a folder, ascending.
absl::StatusOr<std::vector<uint64_t>> ListSegments(const std::string& folder);

}  // namespace genesis
