#include "server/rpc/watch_reactor.h"

#include <memory>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "server/jobs/job_state.h"
#include "server/rpc/status_mapping.h"

namespace genesis {
namespace {

using training::v1::WatchJobResponse;

class WatchReactor final : public grpc::ServerWriteReactor<WatchJobResponse> {
 public:
  WatchReactor(JobManager* jobs, Metrics* metrics, std::string job_id)
      : jobs_(jobs), job_id_(std::move(job_id)), cursor_(std::make_shared<Cursor>(this, metrics)) {}

  void Begin() {
    const absl::Status watching = jobs_->Watch(job_id_, cursor_);
    if (!watching.ok()) cursor_->End(ToGrpcStatus(watching));
  }

  void OnWriteDone(bool ok) override { cursor_->OnWriteDone(ok); }

  void OnCancel() override {
    cursor_->End(grpc::Status(grpc::StatusCode::CANCELLED, "the watch was cancelled"));
  }

  void OnDone() override {
    cursor_->Detach();
    jobs_->Unwatch(job_id_, cursor_.get());
    delete this;
  }

 private:
  // What the hub holds; outlives the reactor, so that a late Notify meets nothing.
  class Cursor final : public JobWatcher {
   public:
    Cursor(WatchReactor* reactor, Metrics* metrics) : metrics_(metrics), reactor_(reactor) {}

    void Notify(std::shared_ptr<const JobSnapshot> snapshot) override {
      absl::MutexLock lock(&mutex_);
      if (snapshot->version <= seen_version_) return;
      seen_version_ = snapshot->version;
      if (newest_ != nullptr) ++dropped_;
      newest_ = std::move(snapshot);
      Advance();
    }

    void OnWriteDone(bool ok) {
      absl::MutexLock lock(&mutex_);
      writing_ = false;
      if (!ok) {
        FinishOnce(grpc::Status::CANCELLED);
      } else if (IsFinal(response_.job().state())) {
        FinishOnce(grpc::Status::OK);
      } else {
        Advance();
      }
    }

    void End(const grpc::Status& status) {
      absl::MutexLock lock(&mutex_);
      FinishOnce(status);
    }

    void Detach() {
      absl::MutexLock lock(&mutex_);
      reactor_ = nullptr;
    }

   private:
    void Advance() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
      if (reactor_ == nullptr || finished_ || writing_ || newest_ == nullptr) return;
      *response_.mutable_job() = newest_->job;
      response_.set_dropped_updates(dropped_);
      newest_.reset();
      dropped_ = 0;
      writing_ = true;
      reactor_->StartWrite(&response_);
    }

    void FinishOnce(const grpc::Status& status) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
      if (reactor_ == nullptr || finished_) return;
      finished_ = true;
      const auto code = static_cast<absl::StatusCode>(status.error_code());
      metrics_->Request("grpc", "WatchJob", absl::StatusCodeToString(code));
      reactor_->Finish(status);
    }

    Metrics* const metrics_;
    absl::Mutex mutex_;
    WatchReactor* reactor_ ABSL_GUARDED_BY(mutex_);
    std::shared_ptr<const JobSnapshot> newest_ ABSL_GUARDED_BY(mutex_);
    int64_t seen_version_ ABSL_GUARDED_BY(mutex_) = 0;
    int64_t dropped_ ABSL_GUARDED_BY(mutex_) = 0;
    bool writing_ ABSL_GUARDED_BY(mutex_) = false;
    bool finished_ ABSL_GUARDED_BY(mutex_) = false;
    WatchJobResponse response_ ABSL_GUARDED_BY(mutex_);
  };

  JobManager* const jobs_;
  const std::string job_id_;
  const std::shared_ptr<Cursor> cursor_;
};

}  // namespace

grpc::ServerWriteReactor<WatchJobResponse>* StartWatch(JobManager* jobs, Metrics* metrics,
                                                       const std::string& job_id) {
  auto* reactor = new WatchReactor(jobs, metrics, job_id);
  reactor->Begin();
  return reactor;
}

}  // namespace genesis
