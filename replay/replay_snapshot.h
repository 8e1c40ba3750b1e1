#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "replay/file.h"
#include "replay/segment_scan.h"

namespace genesis {

// The transitions of a replay buffer at the time of opening. Later appends and evictions do not
// change it because its files stay open. It takes no lock and leaves out a batch whose write is not
// complete. Owner: a dataset. Threads: any, once open. Failure: NOT_FOUND if the folder contains no
// buffer; DATA_LOSS if a file is damaged.
class ReplaySnapshot {
 public:
  // A callback for each row, in order, during opening, with the numbers that follow the row's
  // observations and actions.
  using RowVisitor = absl::FunctionRef<void(const ReplayRowEnd& end)>;

  static absl::StatusOr<ReplaySnapshot> Open(const std::string& folder, RowVisitor visit);

  const ReplayLayout& layout() const { return layout_; }
  int64_t size() const { return size_; }
  // Number of the oldest transition, counted since the buffer was created.
  uint64_t first() const { return first_; }
  // Returns "3 segments, transitions 4096 to 16383".
  std::string Describe() const;
  // Copies rows [first, first + count) in the format of segment.h. Row 0 is the oldest.
  absl::Status Read(int64_t first, int64_t count, char* out) const;

 private:
  struct Record {
    int64_t first_row = 0;
    size_t segment = 0;
    uint64_t offset = 0;  // Offset of its first row.
  };

  absl::Status OpenFiles(const std::string& folder);
  absl::Status ReadSegments(RowVisitor visit);

  ReplayLayout layout_;
  int64_t size_ = 0;
  uint64_t first_ = 0;
  std::vector<ReplayFile> files_;
  std::vector<Record> records_;
};

}  // namespace genesis
