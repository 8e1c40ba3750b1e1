#pragma once

#include <atomic>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "genesis/training/v1/event.pb.h"
#include "server/store/event_reads.h"

namespace genesis {

// The newest durable events of all jobs, in memory, so that many readers cost the store and the
// writer thread nothing.
//
// Owner: EventHub. Threads: the writer's for Append; any for the rest. Failure: none.
class EventLog {
 public:
  struct Entry {
    std::shared_ptr<const training::v1::JobEvent> event;
    std::shared_ptr<const Labels> labels;  // Labels of its job after the event.
  };

  // Sets the newest event before the first one that will be appended.
  void BeginAfter(int64_t sequence);
  // Appends events, oldest first, and calls the listener if there are any.
  void Append(std::vector<Entry> entries);
  // Sets the function that Append calls. It must not block or call the log. Null for none.
  void Listen(std::function<void()> listener);

  // Returns the sequence number of the newest event that is only in the store.
  int64_t newest_stored() const;
  // Returns at most `limit` entries after `sequence`, oldest first; nullopt if some of them are
  // only in the store.
  std::optional<std::vector<Entry>> After(int64_t sequence, size_t limit) const;

 private:
  // Newest sequence number. Atomic, so that a reader that is up to date does not need the lock.
  std::atomic<int64_t> newest_ = 0;
  mutable absl::Mutex mutex_;
  std::deque<Entry> entries_ ABSL_GUARDED_BY(mutex_);
  int64_t dropped_ ABSL_GUARDED_BY(mutex_) = 0;  // Newest sequence number before `entries_`.
  std::function<void()> listener_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace genesis
