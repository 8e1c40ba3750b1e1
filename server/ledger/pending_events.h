#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "genesis/training/v1/event.pb.h"
#include "genesis/training/v1/job.pb.h"
#include "server/ledger/event_log.h"
#include "server/store/job_store.h"

namespace genesis {

// The events and log lines that no transaction has written yet. The next transaction writes both;
// lines alone start one only if due() or full(), so that not every line costs an fsync.
//
// Owner: JobTable. Threads: the writer's. Failure: Write returns the store's status.
class PendingEvents {
 public:
  // Adds an event of a job with these labels.
  void Add(training::v1::JobEvent event, const Labels& labels);
  // Adds a line, which must be written within a second, or sooner if there are many.
  void AddLine(training::v1::JobEvent line, absl::Time now);
  // Drops the events and lines of a job that was removed.
  void Drop(const std::string& job_id);

  // Appends the matching events and lines, oldest first.
  void AppendMatching(const EventQuery& query, std::vector<training::v1::JobEvent>& events) const;

  // Writes all events and lines, sets the events' sequence numbers, and prunes older entries.
  absl::Status Write(JobStore& store);
  // Called after the transaction: returns the written events and lines, oldest first.
  std::vector<EventLog::Entry> Take();
  // Makes Undo keep the lines added so far. Called after a commit that wrote nothing.
  void Settle() { settled_ = all_.size(); }
  // Drops the events and lines added since the last commit.
  void Undo();

  bool empty() const { return all_.empty(); }
  // Returns true if there are so many lines that they must be written now.
  bool full() const;
  // Returns when the lines must be written.
  absl::Time due() const { return due_; }

 private:
  struct Pending {
    std::shared_ptr<training::v1::JobEvent> event;
    std::shared_ptr<const Labels> labels;
  };

  std::vector<Pending> all_;
  size_t settled_ = 0;  // Number of lines from earlier commits, at the front of `all_`.
  absl::Time due_ = absl::InfiniteFuture();
};

}  // namespace genesis
