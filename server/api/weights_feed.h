#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "genesis/training/v1/training_service.pb.h"
#include "server/api/api_gate.h"
#include "server/api/api_parts.h"
#include "server/api/watch_sink.h"
#include "server/ledger/event_hub.h"
#include "server/weights/weights_hub.h"

namespace genesis {

// WatchWeights for every transport: one reader of the weights of one job. It keeps the version that
// it is sending, in memory that a worker wrote, and the newest version.
//
// Owner: the sink, the hub of the weights and that of the events. Threads: any. Failure: Finish
// receives the statuses of WatchWeights.
class WeightsFeed final : public JobWatcher,
                          public WeightsWatcher,
                          public QuietStream,
                          public std::enable_shared_from_this<WeightsFeed> {
 public:
  using Request = training::v1::WatchWeightsRequest;
  using Response = training::v1::WatchWeightsResponse;

  WeightsFeed(WatchSink<Response>* sink, const ApiCall& call, const ApiParts& parts,
              Request request)
      : call_(call),
        jobs_(parts.jobs),
        weights_(parts.weights),
        request_(std::move(request)),
        job_id_(request_.job_id()),
        sink_(sink) {}

  // Checks the request and subscribes; the first Advance writes a message if there is a version.
  // Returns an error instead of passing it to Finish.
  absl::Status Watch();
  // Writes the next message as soon as there is one. The transport calls it only at the start and
  // after each message.
  void Advance();
  void End(const absl::Status& status);
  // Called before the sink is destroyed, but not by a method of the sink.
  void Detach();

  void Notify(std::shared_ptr<const JobSnapshot> snapshot, const JobEvents& events) override;
  void OnWeights(std::shared_ptr<const HeldWeights> weights) override;
  void CheckAdmission() override;

 private:
  // The newest version that has been sent, at least in part. Its number is 0 before the first.
  struct Sent {
    int64_t number = 0;
    int64_t claim = 0;
    double seconds = 0;  // Clock reading of its worker.
    absl::Time time;
  };

  double interval_seconds() const {
    return request_.has_interval_seconds() ? request_.interval_seconds() : 1;
  }
  absl::Status CheckFields(const training::v1::Job& job) const;
  absl::Status HasEnded(const training::v1::Job& job) const;
  // Requests from the worker the kinds of weights that the watchers of the job now read.
  void RequestWeights() const;
  bool IsDue(const HeldWeights& weights) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Starts to send a version: sets its record and the parts of its file.
  void Begin(std::shared_ptr<const HeldWeights> weights) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void TakePiece() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void WakeUp() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void FinishOnce(const absl::Status& status) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  const ApiCall call_;
  JobManager* const jobs_;
  WeightsHub* const weights_;
  const Request request_;
  const std::string& job_id_;  // Refers to `request_`.
  absl::Mutex mutex_;
  WatchSink<Response>* sink_ ABSL_GUARDED_BY(mutex_);
  std::shared_ptr<const HeldWeights> newest_ ABSL_GUARDED_BY(mutex_);  // Not sent yet; may be null.
  // The version being sent, or whose memory the reader may still request; null for none.
  std::shared_ptr<const HeldWeights> sending_ ABSL_GUARDED_BY(mutex_);
  std::string head_ ABSL_GUARDED_BY(mutex_);                    // Start of the file being sent.
  std::vector<std::string_view> left_ ABSL_GUARDED_BY(mutex_);  // Unsent parts, last one first.
  Sent sent_ ABSL_GUARDED_BY(mutex_);
  std::shared_ptr<const JobSnapshot> ended_ ABSL_GUARDED_BY(mutex_);  // Set once the job has ended.
  // True while a message is being written or built; a change then waits for the next Advance.
  bool busy_ ABSL_GUARDED_BY(mutex_) = true;
  bool finished_ ABSL_GUARDED_BY(mutex_) = false;
  bool open_ ABSL_GUARDED_BY(mutex_) = false;  // Registered in the gate's watches.
  Response response_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace genesis
