#include "server/rpc/watch_reactor.h"

#include <memory>
#include <utility>

#include "server/api/watch_feed.h"
#include "server/base/guard.h"
#include "server/base/request_check.h"
#include "server/rpc/status_mapping.h"

namespace genesis {
namespace {

using training::v1::WatchJobRequest;
using training::v1::WatchJobResponse;

class WatchReactor final : public grpc::ServerWriteReactor<WatchJobResponse>, public WatchSink {
 public:
  WatchReactor(const ApiCall& call, const absl::Status& admission, JobManager* jobs,
               WatchJobRequest request)
      : feed_(std::make_shared<WatchFeed>(this, call, jobs, std::move(request))),
        admission_(admission) {}

  void Begin() {
    const absl::Status watching =
        admission_.ok() ? GuardedStatus("WatchJob", [this] { return feed_->Watch(); }) : admission_;
    if (watching.ok()) {
      feed_->Advance();
    } else {
      feed_->End(watching);
    }
  }

  void OnWriteDone(bool ok) override {
    if (ok) return feed_->Advance();
    feed_->End(absl::CancelledError("the reader is gone"));
  }

  void OnCancel() override { feed_->End(absl::CancelledError("the watch was cancelled")); }

  void OnDone() override {
    feed_->Detach();
    delete this;
  }

  void Write(const WatchJobResponse& response) override { StartWrite(&response); }

  void Finish(const absl::Status& status) override {
    grpc::ServerWriteReactor<WatchJobResponse>::Finish(ToGrpcStatus(status));
  }

 private:
  const std::shared_ptr<WatchFeed> feed_;
  const absl::Status admission_;
};

}  // namespace

grpc::ServerWriteReactor<WatchJobResponse>* StartWatch(const ApiCall& call, JobManager* jobs,
                                                       const WatchJobRequest& request) {
  const absl::Status admission = call.admission().ok() ? CheckRequest(request) : call.admission();
  auto* reactor = new WatchReactor(call, admission, jobs, request);
  reactor->Begin();
  return reactor;
}

}  // namespace genesis
