#pragma once

#include <condition_variable>
#include <deque>
#include <functional>
#include <mutex>
#include <thread>

#include "genesis/training/v1/worker_service.pb.h"

namespace genesis {

// Sends a worker's events in order, on a thread of its own, so that training never waits for the
// daemon. While the daemon is slow, reports of steps merge into one and log lines beyond the bound
// are dropped; checkpoints, the start and the end are never dropped.
//
// Owner: RunAttached. Threads: Enqueue from any. Failure: after a refused write everything is
// discarded and `on_broken` has been called once, on the sending thread.
class EventSender {
 public:
  // Writes one event; false when the stream is broken.
  using Write = std::function<bool(const training::v1::AttachRequest&)>;

  EventSender(Write write, std::function<void()> on_broken);
  // Drops what is not yet sent; see Drain.
  ~EventSender();
  EventSender(const EventSender&) = delete;
  EventSender& operator=(const EventSender&) = delete;

  void Enqueue(training::v1::AttachRequest event);
  // Waits until all is sent; false when the stream broke.
  bool Drain();

 private:
  void Loop();

  const Write write_;
  const std::function<void()> on_broken_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<training::v1::AttachRequest> queue_;
  bool writing_ = false;
  bool broken_ = false;
  bool ending_ = false;
  std::thread thread_;  // Last, for it uses the others.
};

// Adds the counters of `newer` to `steps`, appends its step times, and takes its progress.
void MergeSteps(const training::v1::Steps& newer, training::v1::Steps& steps);

}  // namespace genesis
