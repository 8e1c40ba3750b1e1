#pragma once

#include <deque>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "genesis/training/v1/training_service.pb.h"
#include "server/api/api_gate.h"
#include "server/api/api_parts.h"
#include "server/api/watch_sink.h"
#include "server/jobs/job_manager.h"
#include "server/ledger/event_hub.h"

namespace genesis {

// WatchJob for every transport: one reader of one job. The hub also owns it, so it may outlive its
// sink, and a late Notify is harmless.
//
// Keeps the newest snapshot and at most 256 events. If more arrive while a message is in flight,
// they are dropped and `behind_` is set; the next message is then read from the store, but not on
// the writer thread, so that a slow reader costs the writer nothing. The feed ends when its caller
// is no longer admitted.
//
// Owner: the sink and the hub. Threads: any. Failure: Finish receives the statuses of WatchJob.
class WatchFeed final : public JobWatcher,
                        public QuietStream,
                        public std::enable_shared_from_this<WatchFeed> {
 public:
  using Request = training::v1::WatchJobRequest;
  using Response = training::v1::WatchJobResponse;

  WatchFeed(WatchSink<Response>* sink, const ApiCall& call, const ApiParts& parts, Request request)
      : call_(call),
        jobs_(parts.jobs),
        request_(std::move(request)),
        job_id_(request_.job_id()),
        sink_(sink) {}

  // Subscribes to the job; the first Advance writes its current state. Returns an error instead of
  // passing it to Finish.
  absl::Status Watch();
  // Writes the next message as soon as there is one, or ends the watch. Blocks on the store. The
  // transport calls it only at the start and after each message.
  void Advance();
  void End(const absl::Status& status);
  // Called before the sink is destroyed, but not by a method of the sink.
  void Detach();

  // Only queues the change. Messages are built on a thread of the gate.
  void Notify(std::shared_ptr<const JobSnapshot> snapshot, const JobEvents& events) override;
  void CheckAdmission() override;

 private:
  // Returns the events in the store after `after`, at most kMaxEvents.
  absl::StatusOr<std::vector<training::v1::JobEvent>> EventsOf(int64_t after) const;
  void WriteNext(const std::vector<training::v1::JobEvent>& replay)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void AddEvents(const std::vector<training::v1::JobEvent>& replay,
                 training::v1::WatchJobResponse& next) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void FinishOnce(const absl::Status& status) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  const ApiCall call_;
  JobManager* const jobs_;
  const Request request_;
  const std::string& job_id_;  // Refers to `request_`.
  absl::Mutex mutex_;
  WatchSink<Response>* sink_ ABSL_GUARDED_BY(mutex_);
  std::shared_ptr<const JobSnapshot> newest_ ABSL_GUARDED_BY(mutex_);
  int64_t seen_version_ ABSL_GUARDED_BY(mutex_) = -1;
  int64_t dropped_ ABSL_GUARDED_BY(mutex_) = 0;
  std::deque<std::shared_ptr<const training::v1::JobEvent>> pending_ ABSL_GUARDED_BY(mutex_);
  int64_t sent_sequence_ ABSL_GUARDED_BY(mutex_) = 0;
  bool behind_ ABSL_GUARDED_BY(mutex_) = false;
  // True while a message is being written or built; Notify then only queues its change.
  bool busy_ ABSL_GUARDED_BY(mutex_) = true;
  bool finished_ ABSL_GUARDED_BY(mutex_) = false;
  bool open_ ABSL_GUARDED_BY(mutex_) = false;  // Registered in the gate's watches.
  Response response_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace genesis
