#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/synchronization/mutex.h"
#include "genesis/training/v1/training_service.pb.h"
#include "server/api/api_gate.h"
#include "server/api/api_parts.h"
#include "server/api/event_filter.h"
#include "server/api/event_watches.h"
#include "server/api/watch_sink.h"

namespace genesis {

// WatchJobs for every transport: one reader of the events of all jobs. It keeps only its cursor and
// the newest progress of each job; events are read from EventLog, or from the store if the reader
// is further behind.
//
// Owner: the sink. Threads: any. Failure: Finish receives the statuses of WatchJobs.
class FleetFeed final : public EventWatcher,
                        public QuietStream,
                        public std::enable_shared_from_this<FleetFeed> {
 public:
  using Request = training::v1::WatchJobsRequest;
  using Response = training::v1::WatchJobsResponse;

  FleetFeed(WatchSink<Response>* sink, const ApiCall& call, const ApiParts& parts, Request request)
      : call_(call),
        jobs_(parts.jobs),
        watches_(parts.watches),
        request_(std::move(request)),
        sink_(sink) {}

  // Checks the request and subscribes; the first Advance writes a message. Returns an error instead
  // of passing it to Finish.
  absl::Status Watch();
  // Writes the next message as soon as there is one. Blocks on the store. The transport calls it
  // only at the start and after each message.
  void Advance();
  void End(const absl::Status& status);
  // Called before the sink is destroyed, but not by a method of the sink.
  void Detach();

  void OnEvents() override;
  void OnSecond(const std::vector<std::shared_ptr<const JobSnapshot>>& changed) override;
  void OnStop() override;
  void CheckAdmission() override;

 private:
  void AddProgress(Response& next) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Writes the page and pending progress. Returns false if the stream is open and there is nothing
  // to write.
  bool Write(EventPage page) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void FinishOnce(const absl::Status& status) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  const ApiCall call_;
  JobManager* const jobs_;
  EventWatches* const watches_;
  const Request request_;
  ParsedFilter filter_;  // Set by Watch.
  absl::Mutex mutex_;
  WatchSink<Response>* sink_ ABSL_GUARDED_BY(mutex_);
  int64_t cursor_ ABSL_GUARDED_BY(mutex_) = 0;
  std::map<std::string, std::shared_ptr<const JobSnapshot>> progress_ ABSL_GUARDED_BY(mutex_);
  int idle_seconds_ ABSL_GUARDED_BY(mutex_) = 0;
  bool bookmark_ ABSL_GUARDED_BY(mutex_) = true;
  // True while a message is being written or built; news then only sets `news_`.
  bool busy_ ABSL_GUARDED_BY(mutex_) = true;
  bool news_ ABSL_GUARDED_BY(mutex_) = false;
  bool finished_ ABSL_GUARDED_BY(mutex_) = false;
  bool open_ ABSL_GUARDED_BY(mutex_) = false;  // Registered in the gate's watches.
  Response response_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace genesis
