#include "server/rpc/append_reactor.h"

#include <atomic>

#include "absl/status/status.h"
#include "server/base/guard.h"
#include "server/datasets/append_stream.h"
#include "server/rpc/status_mapping.h"

namespace genesis {
namespace {

using training::v1::AppendTrajectoriesRequest;
using training::v1::AppendTrajectoriesResponse;

// The reader of one stream of batches. It may append one message while it reads the next. A cancel
// makes a read return ok = false, after which the call ends, once no append is in progress.
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
      StartRead(&read_);
    } else {
      End(admitted);
    }
  }

  void OnReadDone(bool ok) override {
    if (state_.exchange(ok ? State::kMessage : State::kEnd) == State::kAppending) return;
    GoOn(ok);
  }

  void OnDone() override { delete this; }

 private:
  // kMessage and kEnd: the read is complete; the append of the message before may still run.
  enum class State { kReading, kAppending, kMessage, kEnd };

  // Posts each message separately, so that streams take turns. After End, or in the state kReading,
  // another thread may have deleted this object.
  void GoOn(bool has_message) {
    if (!has_message) return EndOfMessages();
    store_->Post([this] {
      appended_.Swap(&read_);
      state_ = State::kAppending;
      StartRead(&read_);
      const absl::Status status = GuardedStatus("AppendTrajectories", [this] {
        const absl::Status admitted = call_.StillAdmitted();
        return admitted.ok() ? stream_.Append(appended_) : admitted;
      });
      if (!status.ok()) return End(status);
      State now = State::kAppending;
      if (!state_.compare_exchange_strong(now, State::kReading)) GoOn(now == State::kMessage);
    });
  }

  void EndOfMessages() {
    if (context_->IsCancelled()) {
      End(absl::CancelledError("the append was cancelled; batches before it are durable"));
    } else {
      End(stream_.End());
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
  AppendTrajectoriesRequest read_, appended_;
  std::atomic<State> state_ = State::kReading;
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
