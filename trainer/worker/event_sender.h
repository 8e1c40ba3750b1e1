#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <optional>
#include <thread>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "genesis/training/v1/worker_service.pb.h"

namespace genesis {

// A queue whose background thread sends a worker's events in order, so that training never waits
// for the daemon. While the daemon is slow or away, reports of steps are merged and log lines
// beyond the bound dropped. Most other events are numbered and kept until the daemon acknowledges
// them; a new stream resends them until then. All texts are bounded and sanitized here.
//
// Owner: RunAttached. Threads: any. Failure: a failed write detaches; its event is kept.
class EventSender {
 public:
  // Writes one event; returns false if the stream is broken.
  using Write = std::function<bool(const training::v1::AttachRequest&)>;

  EventSender();
  // Drops unsent events; see Drain.
  ~EventSender();
  EventSender(const EventSender&) = delete;
  EventSender& operator=(const EventSender&) = delete;

  void Enqueue(training::v1::AttachRequest event);
  // Call with a new stream. `write` is called until Detach has returned.
  void Attach(Write write);
  // Call when the stream is gone. Waits for a write in progress.
  void Detach();
  // Call between Detach and Attach if the daemon ended the stream because it could not read a
  // message. From now on one message is sent at a time to identify the bad one, which is reduced to
  // a readable form or dropped.
  void Refused();
  // Call when the daemon has made every event up to this number durable.
  void Acknowledge(int64_t sequence);
  // Waits until everything is sent and acknowledged; returns false if GiveUp came first.
  bool Drain();
  // Call if there will be no further stream.
  void GiveUp();

 private:
  void Loop();
  bool Idle() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) { return !writing_; }
  bool HasWork() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  bool Drained() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  bool DrainedOrGivenUp() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  absl::Mutex mutex_;
  Write write_ ABSL_GUARDED_BY(mutex_);  // Empty while there is no stream.
  std::deque<training::v1::AttachRequest> waiting_ ABSL_GUARDED_BY(mutex_);
  // Sent on this stream and not yet acknowledged.
  std::deque<training::v1::AttachRequest> unacknowledged_ ABSL_GUARDED_BY(mutex_);
  int64_t last_sequence_ ABSL_GUARDED_BY(mutex_) = 0;
  int64_t acknowledged_ ABSL_GUARDED_BY(mutex_) = 0;
  // If set, an event is sent only after the previous one was acknowledged.
  bool one_at_a_time_ ABSL_GUARDED_BY(mutex_) = false;
  bool writing_ ABSL_GUARDED_BY(mutex_) = false;
  bool given_up_ ABSL_GUARDED_BY(mutex_) = false;
  bool ending_ ABSL_GUARDED_BY(mutex_) = false;
  std::thread thread_;  // Last, because it uses the other members.
};

// Adds the counters and times of `newer` to `steps`, and takes all else from `newer`.
void MergeSteps(const training::v1::Steps& newer, training::v1::Steps& steps);

}  // namespace genesis
