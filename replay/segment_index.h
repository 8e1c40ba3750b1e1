#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "replay/segment.h"

namespace genesis {

// Writes the index of a finished segment, from which a writer loads batch IDs without reading the
// whole buffer: "GNSRPLX1", size of the segment u64, number of records u64, then for each record
// offset u64, body_size u64, first u64, body checksum u32, count u32, id_size u32 and the id. The
// checksum of all preceding bytes, u32, comes last.
//
// The index is only a cache: if it is missing, damaged or for another segment size, it is ignored
// and rebuilt from the segment. It does not contain `part`, because the records of a batch are
// successive and have its id.
absl::Status WriteSegmentIndex(const std::string& folder, uint64_t first, uint64_t segment_size,
                               const std::vector<RecordEntry>& records);
std::optional<std::vector<RecordEntry>> ReadSegmentIndex(const std::string& folder,
                                                         const SegmentHeader& header,
                                                         uint64_t segment_size);
std::string SegmentIndexName(uint64_t first);

}  // namespace genesis
