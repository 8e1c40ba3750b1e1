#include "server/rpc/append_reactor.h"

#include <optional>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "server/rpc/status_mapping.h"

namespace genesis {
namespace {

using training::v1::AppendTrajectoriesRequest;
using training::v1::AppendTrajectoriesResponse;

// Either a read or an append is under way, never both, so nothing here needs a lock. A cancel ends
// the read, or the one after the append, with ok = false; that is where the call is finished.
class AppendReactor final : public grpc::ServerReadReactor<AppendTrajectoriesRequest> {
 public:
  AppendReactor(grpc::CallbackServerContext* context, ReplayStore* store, Metrics* metrics,
                AppendTrajectoriesResponse* response)
      : context_(context), store_(store), metrics_(metrics), response_(response) {}

  void Begin() {
    const absl::Status admitted = store_->BeginStream();
    admitted_ = admitted.ok();
    if (admitted_) {
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
    } else if (!target_) {
      End(absl::InvalidArgumentError(
          "the stream has no batch; accepted: at least 1 message before its end"));
    } else {
      End(absl::OkStatus());
    }
  }

  void OnDone() override {
    if (admitted_) store_->EndStream();
    delete this;
  }

 private:
  // After StartRead or End another thread may have deleted this.
  void AppendAndReadOn() {
    const absl::Status status = Append();
    if (status.ok()) {
      StartRead(&request_);
    } else {
      End(status);
    }
  }

  absl::Status Append() {
    if (!target_) {
      absl::StatusOr<AppendTarget> target = ReadTarget(request_);
      if (!target.ok()) return target.status();
      target_ = *std::move(target);
    }
    const absl::StatusOr<std::vector<ReplayTransition>> transitions = ReadBatch(request_, *target_);
    if (!transitions.ok()) return transitions.status();
    const absl::StatusOr<ReplayStore::Result> result =
        store_->Append(*target_, request_.batch_id(), *transitions);
    if (!result.ok()) return result.status();
    if (result->appended.repeated) {
      response_->set_repeated_batches(response_->repeated_batches() + 1);
    } else {
      const int64_t count = result->appended.count;
      response_->set_appended_batches(response_->appended_batches() + 1);
      response_->set_appended_transitions(response_->appended_transitions() + count);
      metrics_->TransitionsAppended(count);
    }
    response_->set_buffer_transitions(result->size);
    return absl::OkStatus();
  }

  void End(const absl::Status& status) {
    metrics_->Request("grpc", "AppendTrajectories", absl::StatusCodeToString(status.code()));
    Finish(ToGrpcStatus(status));
  }

  grpc::CallbackServerContext* const context_;
  ReplayStore* const store_;
  Metrics* const metrics_;
  AppendTrajectoriesResponse* const response_;
  AppendTrajectoriesRequest request_;
  std::optional<AppendTarget> target_;
  bool admitted_ = false;
};

}  // namespace

grpc::ServerReadReactor<AppendTrajectoriesRequest>* StartAppend(
    grpc::CallbackServerContext* context, ReplayStore* store, Metrics* metrics,
    AppendTrajectoriesResponse* response) {
  auto* reactor = new AppendReactor(context, store, metrics, response);
  reactor->Begin();
  return reactor;
}

}  // namespace genesis
