#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "replay/file.h"
#include "replay/replay_batch.h"
#include "replay/segment.h"

namespace genesis {

struct ReplayOptions {
  // Columns of every transition; must be those of a buffer already in the folder.
  ReplayLayout layout;
  // Maximum number of transitions kept. The oldest segment is removed as a whole to make room.
  int64_t capacity = 1'000'000;
  // A batch that would exceed this number of transitions in a segment begins a new segment. 0: an
  // eighth of the capacity, at least 1 and at most 65536.
  int64_t segment_transitions = 0;
};

// The result of an append.
struct Appended {
  int64_t first = 0;  // Number of the first transition.
  int64_t count = 0;
  bool repeated = false;  // The batch was already in the buffer.
};

// A writer that appends to a replay buffer, whose files segment.h describes. A batch is appended
// whole or not at all and is durable when Append returns.
//
// A lock ensures one writer per folder. Threads: one at a time. Failure: INVALID_ARGUMENT for an
// unusable batch, ALREADY_EXISTS for another batch of the same id, RESOURCE_EXHAUSTED for a full
// disk (nothing was appended; try again), DATA_LOSS for damage. After a failed sync every append
// fails: the content of the disk is unknown until the buffer is opened again.
class ReplayWriter {
 public:
  // Creates the folder if it does not exist and cuts off a torn record. FAILED_PRECONDITION if
  // another writer holds the folder or its transitions have other columns.
  static absl::StatusOr<std::unique_ptr<ReplayWriter>> Open(const std::string& folder,
                                                            const ReplayOptions& options);

  // The id of a batch has 1 to 255 bytes, and its parts have the layout of `options`. While the
  // batch is in the buffer, appending its id with the same parts succeeds and appends nothing.
  absl::StatusOr<Appended> Append(ReplayBatch batch);

  // Number of transitions in the buffer, and the number of the oldest.
  int64_t size() const { return static_cast<int64_t>(next_ - first()); }
  uint64_t first() const { return segments_.empty() ? next_ : segments_.front().first; }
  size_t segments() const { return segments_.size(); }
  // Size of the segments.
  uint64_t bytes() const { return bytes_; }
  bool Has(const std::string& batch_id) const { return batches_.contains(batch_id); }
  // The repairs made during opening; empty if there were none.
  const std::string& repaired() const { return repaired_; }

 private:
  struct Segment {
    uint64_t first = 0;
    uint64_t size = 0;  // Bytes.
    std::vector<RecordEntry> records;
  };
  // The location of a batch in the buffer.
  struct Place {
    uint64_t segment = 0;
    std::vector<RecordEntry> records;
  };

  ReplayWriter(std::string folder, const ReplayOptions& options);
  absl::Status Load();
  absl::Status LoadSegment(uint64_t first, bool last);
  absl::Status CheckLayout(const SegmentHeader& header) const;
  absl::Status CheckBatch(const ReplayBatch& batch) const;
  absl::StatusOr<Appended> Repeat(const Place& place, ReplayBatch batch) const;
  absl::Status BeginSegment();
  absl::StatusOr<std::vector<RecordEntry>> WriteRecords(ReplayBatch batch, uint64_t offset);
  void Evict();
  int64_t Transitions(const Segment& segment) const;
  std::string PathOf(uint64_t first) const;

  const std::string folder_;
  ReplayOptions options_;
  ReplayFile lock_;
  ReplayFile active_;  // The last segment.
  std::deque<Segment> segments_;
  std::map<std::string, Place> batches_;
  uint64_t next_ = 0;
  uint64_t bytes_ = 0;
  std::string repaired_;
  absl::Status broken_;
};

}  // namespace genesis
