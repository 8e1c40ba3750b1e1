#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "replay/file.h"
#include "replay/segment_scan.h"

namespace genesis {

// The transitions that a replay buffer held when it was opened, whatever is appended or evicted
// afterwards: the files stay open. Needs no lock; a batch that is being written is not in it.
//
// Owner: a dataset. Threads: any, once open. Failure: NOT_FOUND, DATA_LOSS for damage.
class ReplaySnapshot {
 public:
  // Called once with each row, in order, while opening; the numbers at the end of a row follow its
  // observations and actions.
  using RowVisitor = absl::FunctionRef<void(const ReplayRowEnd& end)>;

  static absl::StatusOr<ReplaySnapshot> Open(const std::string& folder, RowVisitor visit);

  const ReplayLayout& layout() const { return layout_; }
  int64_t size() const { return size_; }
  // Number of the oldest transition since the buffer began.
  uint64_t first() const { return first_; }
  // "3 segments, transitions 4096 to 16383".
  std::string Describe() const;
  // Copies rows [first, first + count), as segment.h describes them; 0 is the oldest.
  absl::Status Read(int64_t first, int64_t count, char* out) const;

 private:
  struct Record {
    int64_t first_row = 0;
    size_t segment = 0;
    uint64_t offset = 0;  // Of its first row.
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
