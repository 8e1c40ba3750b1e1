#pragma once

#include <cstdint>
#include <deque>
#include <string>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "replay/file.h"
#include "replay/segment_scan.h"

namespace genesis {

// The transitions of a replay buffer at the time of opening, or of the last ReadNew. Later appends
// and evictions do not change it because its files stay open. It takes no lock and leaves out a
// batch whose write is not complete. Owner: a dataset. Threads: any may call const methods, once
// open; ReadNew and Forget exclude them. Failure: NOT_FOUND if the folder contains no buffer;
// DATA_LOSS if a file is damaged.
class ReplaySnapshot {
 public:
  // A callback for each row that is read, in order, with the row's number and its end: reward,
  // priority and flags.
  using RowVisitor = absl::FunctionRef<void(uint64_t number, const ReplayRowEnd& end)>;

  static absl::StatusOr<ReplaySnapshot> Open(const std::string& folder, RowVisitor visit);

  // Adds the transitions appended since the last read. Skips those that were evicted before it read
  // them, so that the numbers have a gap. Cheap if there is nothing new: three system calls.
  absl::Status ReadNew(RowVisitor visit);
  // Returns the number of the oldest transition whose segment is still in the folder.
  uint64_t FirstInFolder() const;
  // Closes the segments that hold only transitions before `number`.
  void Forget(uint64_t number);

  const ReplayLayout& layout() const { return layout_; }
  // Number of the oldest transition, counted since the buffer was created.
  uint64_t first() const { return segments_.front().scan.header.first; }
  // Number that follows that of the newest transition.
  uint64_t next() const { return segments_.back().next(); }
  // Number of transitions, if there is no gap.
  int64_t size() const { return static_cast<int64_t>(next() - first()); }
  // Returns "3 segments, transitions 4096 to 16383".
  std::string Describe() const;
  // Copies `count` rows, from number `first` on, in the format of segment.h. Requires all of them.
  absl::Status Read(uint64_t first, int64_t count, char* out) const;
  // Copies a variable value of transition `number`, as its row describes it.
  absl::Status ReadValue(uint64_t number, const VariableValue& value, char* out) const;

 private:
  // The rows of one record.
  struct Rows {
    uint64_t first = 0;
    uint64_t offset = 0;  // Offset of the first row in the file.
    uint64_t end = 0;     // Offset after the record.
  };
  struct Segment {
    ReplayFile file;
    SegmentScan scan;  // Keeps only its last record.
    std::vector<Rows> records;

    uint64_t next() const { return scan.next(); }
  };

  explicit ReplaySnapshot(std::string folder) : folder_(std::move(folder)) {}

  absl::Status OpenSegments(uint64_t from);
  absl::Status ReadSegments(size_t from, RowVisitor visit);
  absl::Status ReadRows(bool last, RowVisitor visit, Segment& segment);
  bool InFolder(uint64_t segment) const;
  // Return the segment, and the record in it, that contain a transition.
  std::deque<Segment>::const_iterator SegmentOf(uint64_t number) const;
  static std::vector<Rows>::const_iterator RecordOf(const Segment& segment, uint64_t number);

  std::string folder_;
  ReplayLayout layout_;
  std::deque<Segment> segments_;
};

}  // namespace genesis
