#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "replay/replay_snapshot.h"
#include "trainer/data/dataset.h"
#include "trainer/data/replay_columns.h"
#include "trainer/data/replay_transitions.h"

namespace genesis {

// Transitions of a replay buffer, by their numbers: [first, next).
struct ReplayRange {
  uint64_t first = 0;
  uint64_t next = 0;
  bool operator==(const ReplayRange&) const = default;
};

// The examples of a replay buffer that changes while a job trains on it (dataset.replay.follow).
// They change only in Take and are a pure function of the buffer's transitions and the range. An
// episode grows as its transitions arrive. A hash of its first transition's number decides whether
// it is held out (holdout.h). The oldest episode after an eviction is left out, because its first
// rows may be gone. Rows are read from the files, which stay open while an example needs them.
//
// Owner: the run. Threads: Look and the methods of Dataset may run concurrently; Take and
// FixStatistics must not run concurrently with any other method. Failure: as Dataset.
class FollowedReplay final : public Dataset {
 public:
  // Opens the buffer of spec.dataset().replay(), without examples.
  static absl::StatusOr<std::unique_ptr<FollowedReplay>> Open(const training::v1::JobSpec& spec);

  // Reads new transitions. Returns the range of transitions that are now in the folder.
  absl::StatusOr<ReplayRange> Look();
  // Sets the examples to those of `range`. Requires that Look has returned range.next or more.
  void Take(const ReplayRange& range);
  const ReplayRange& range() const { return range_; }
  // Computes the statistics from the current training part; later calls of Take do not change them.
  // Does nothing for a buffer with declared columns. Call once, before a model is built. Requires
  // training_size() >= 1.
  absl::Status FixStatistics();

  const std::vector<Field>& fields() const override { return fields_; }
  int64_t size() const override { return training_.size() + held_out_.size(); }
  int64_t training_size() const override { return training_.size(); }
  absl::Status Gather(absl::Span<const int64_t> examples,
                      absl::Span<std::byte* const> out) const override;
  const std::map<std::string, ColumnStatistics>& statistics() const override { return statistics_; }
  // Returns the priorities of the training examples; empty unless sampling is prioritized.
  const std::vector<float>& priorities() const override { return priorities_; }
  int64_t dropped() const override { return training_.begin; }
  int64_t SizeBefore(uint64_t next) const override;
  std::string Describe() const override;

 private:
  struct Episode {
    uint64_t first = 0;
    uint64_t next = 0;
    int64_t first_window = 0;  // Number of its first window, counted since the job began.
  };
  // The training part or the held-out part: the windows of its episodes, oldest first.
  struct Part {
    std::deque<Episode> episodes;
    int64_t begin = 0;  // The oldest window that is an example.
    int64_t end = 0;

    int64_t size() const { return end - begin; }
    // Returns the window after the last one of an episode.
    int64_t EndOf(std::deque<Episode>::const_iterator episode) const;
    // Returns the number of the first transition of an example.
    uint64_t FirstRow(int64_t example) const;
  };
  struct NewRow {
    uint64_t number = 0;
    bool ends_episode = false;
    float priority = 0;
  };

  explicit FollowedReplay(const training::v1::JobSpec& spec);

  void BeginGap(uint64_t next);
  void NoteRow(uint64_t number, const ReplayRowEnd& end);
  void AddRow(const NewRow& row);
  void Evict(Part& part) const;
  void LimitAge();
  void AddWindow();
  template <typename Visit>
  absl::Status VisitTrainingRows(const Visit& visit) const;
  absl::Status CheckChanges(const float* row, uint64_t number) const;
  absl::Status GatherVectors(uint64_t first, int64_t place, absl::Span<std::byte* const> out) const
      ABSL_SHARED_LOCKS_REQUIRED(mutex_);
  absl::Status SetColumns(const ReplayLayout& layout, bool is_exported);

  const std::string name_;
  const double holdout_fraction_;
  const int64_t steps_;
  const int64_t newest_transitions_;
  const bool prioritized_;
  mutable absl::Mutex mutex_;
  std::unique_ptr<ReplaySnapshot> snapshot_ ABSL_PT_GUARDED_BY(mutex_);
  std::optional<VectorColumns> vectors_;  // Exactly one of vectors_ and columns_ is set.
  std::optional<ReplayColumns> columns_;
  std::deque<NewRow> new_rows_;  // Rows that Look has read and Take has not taken.
  ReplayRange range_;
  Part training_, held_out_;
  Part* open_part_ = nullptr;  // The part of the unfinished episode; null if there is none.
  bool skipping_ = false;      // Set while rows are skipped up to the end of an episode.
  std::vector<Field> fields_;
  std::map<std::string, ColumnStatistics> statistics_;
  std::vector<float> priorities_;
  std::deque<float> recent_;  // Priorities of the newest transitions of the open episode.
};

}  // namespace genesis
