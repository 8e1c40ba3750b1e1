#include "server/rpc/watch_reactor.h"

#include <memory>
#include <utility>

#include "server/api/fleet_feed.h"
#include "server/api/watch_feed.h"
#include "server/api/weights_feed.h"
#include "server/base/guard.h"
#include "server/base/request_check.h"
#include "server/rpc/status_mapping.h"

namespace genesis {
namespace {

// A gRPC stream as the sink of a `Feed`: WatchFeed, FleetFeed or WeightsFeed.
template <typename Feed>
class WatchReactor final : public grpc::ServerWriteReactor<typename Feed::Response>,
                           public WatchSink<typename Feed::Response> {
 public:
  using Response = typename Feed::Response;

  WatchReactor(const ApiCall& call, const absl::Status& admission, const ApiParts& parts,
               typename Feed::Request request)
      : feed_(std::make_shared<Feed>(this, call, parts, std::move(request))),
        admission_(admission) {}

  void Begin() {
    const absl::Status watching =
        admission_.ok() ? GuardedStatus("watch", [this] { return feed_->Watch(); }) : admission_;
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

  void Write(const Response& response) override { this->StartWrite(&response); }

  void Finish(const absl::Status& status) override {
    grpc::ServerWriteReactor<Response>::Finish(ToGrpcStatus(status));
  }

 private:
  const std::shared_ptr<Feed> feed_;
  const absl::Status admission_;
};

template <typename Feed>
grpc::ServerWriteReactor<typename Feed::Response>* Start(const ApiCall& call, const ApiParts& parts,
                                                         const typename Feed::Request& request) {
  const absl::Status admission = call.admission().ok() ? CheckRequest(request) : call.admission();
  auto* reactor = new WatchReactor<Feed>(call, admission, parts, request);
  reactor->Begin();
  return reactor;
}

}  // namespace

grpc::ServerWriteReactor<training::v1::WatchJobResponse>* StartWatch(
    const ApiCall& call, const ApiParts& parts, const training::v1::WatchJobRequest& request) {
  return Start<WatchFeed>(call, parts, request);
}

grpc::ServerWriteReactor<training::v1::WatchJobsResponse>* StartWatch(
    const ApiCall& call, const ApiParts& parts, const training::v1::WatchJobsRequest& request) {
  return Start<FleetFeed>(call, parts, request);
}

grpc::ServerWriteReactor<training::v1::WatchWeightsResponse>* StartWatch(
    const ApiCall& call, const ApiParts& parts, const training::v1::WatchWeightsRequest& request) {
  return Start<WeightsFeed>(call, parts, request);
}

}  // namespace genesis
