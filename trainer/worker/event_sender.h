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

// Sends a worker's events in order, on a thread of its own, so that training never waits for the
// daemon. While the daemon is slow or away, reports of steps merge into one and log lines beyond
// the bound are dropped. Everything else is numbered and kept until the daemon has acknowledged it;
// a new stream gets what is not acknowledged once more. Texts are made fit for the wire here,
// whoever wrote them.
//
// Owner: RunAttached. Threads: any. Failure: a write that fails detaches; what it was to send
// stays.
class EventSender {
 public:
  // Writes one event; false when the stream is broken.
  using Write = std::function<bool(const training::v1::AttachRequest&)>;

  EventSender();
  // Drops what is not yet sent; see Drain.
  ~EventSender();
  EventSender(const EventSender&) = delete;
  EventSender& operator=(const EventSender&) = delete;

  void Enqueue(training::v1::AttachRequest event);
  // A stream is there. `write` is called until Detach has returned.
  void Attach(Write write);
  // The stream is gone. Waits for the write that is under way.
  void Detach();
  // The stream was ended because the daemon could not read a message. From now on one message is
  // sent at a time, so that the one at fault is known; that one is cut down to what can be read, or
  // dropped. Between Detach and Attach.
  void Refused();
  // The daemon has made every event up to this number durable.
  void Acknowledge(int64_t sequence);
  // Waits until everything is sent and acknowledged; false when GiveUp came before.
  bool Drain();
  // No stream will come any more.
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
  // Sent on this stream; to be kept.
  std::deque<training::v1::AttachRequest> unacknowledged_ ABSL_GUARDED_BY(mutex_);
  int64_t last_sequence_ ABSL_GUARDED_BY(mutex_) = 0;
  int64_t acknowledged_ ABSL_GUARDED_BY(mutex_) = 0;
  // The next waits for the acknowledgement of the one before.
  bool one_at_a_time_ ABSL_GUARDED_BY(mutex_) = false;
  bool writing_ ABSL_GUARDED_BY(mutex_) = false;
  bool given_up_ ABSL_GUARDED_BY(mutex_) = false;
  bool ending_ ABSL_GUARDED_BY(mutex_) = false;
  std::thread thread_;  // Last, for it uses the others.
};

// Adds the counters of `newer` to `steps`, appends its step times, and takes its progress.
void MergeSteps(const training::v1::Steps& newer, training::v1::Steps& steps);

}  // namespace genesis
