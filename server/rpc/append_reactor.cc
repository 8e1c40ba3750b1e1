#include "server/rpc/append_reactor.h"

#include "absl/status/status.h"
#include "server/base/guard.h"
#include "server/datasets/append_stream.h"
#include "server/rpc/status_mapping.h"

namespace genesis {
namespace {

using training::v1::AppendTrajectoriesRequest;
using training::v1::AppendTrajectoriesResponse;

// At most one read or append is in progress, so no lock is needed. A cancel makes the current or
// the next read return ok = false, where the call is finished.
class AppendReactor final : public grpc::ServerReadReactor<AppendTrajectoriesRequest> {
 public:
  AppendReactor(const ApiCall& call, grpc::CallbackServerContext* context, ReplayStore* store,
                Metrics* metrics, AppendTrajectoriesResponse* response)
      : call_(call),
        context_(context),
        store_(store),
        stream_(store, metrics, call.caller()),
        response_(response) {}

  void Begin() {
    const absl::Status admitted = call_.admission().ok() ? stream_.Begin() : call_.admission();
    if (admitted.ok()) {
      StartRead(&request_);
    } else {
      End(admitted);
    }
  }

  void OnReadDone(bool ok) override {
    if (ok) {
      store_->Post([this] { AppendAndReadOn(); });
    } else if (context_->IsCancelled()) {
      End(absl::CancelledError("the append was cancelled; batches before it are durable"));
    } else {
      End(stream_.End());
    }
  }

  void OnDone() override { delete this; }

 private:
  // After StartRead or End, another thread may have deleted this object.
  void AppendAndReadOn() {
    const absl::Status status = GuardedStatus("AppendTrajectories", [this] {
      const absl::Status admitted = call_.StillAdmitted();
      return admitted.ok() ? stream_.Append(request_) : admitted;
    });
    if (status.ok()) {
      StartRead(&request_);
    } else {
      End(status);
    }
  }

  void End(const absl::Status& status) {
    *response_ = stream_.response();
    call_.Done(stream_.dataset(), status);
    Finish(ToGrpcStatus(status));
  }

  const ApiCall call_;
  grpc::CallbackServerContext* const context_;
  ReplayStore* const store_;
  AppendStream stream_;
  AppendTrajectoriesResponse* const response_;
  AppendTrajectoriesRequest request_;
};

}  // namespace

grpc::ServerReadReactor<AppendTrajectoriesRequest>* StartAppend(
    const ApiCall& call, grpc::CallbackServerContext* context, ReplayStore* store, Metrics* metrics,
    AppendTrajectoriesResponse* response) {
  auto* reactor = new AppendReactor(call, context, store, metrics, response);
  reactor->Begin();
  return reactor;
}

}  // namespace genesis
