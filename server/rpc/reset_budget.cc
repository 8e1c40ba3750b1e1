#include "server/rpc/reset_budget.h"

#include <algorithm>
#include <atomic>

#include "base/steady_time.h"

namespace genesis {
namespace {

// Connections that are remembered; one that has its whole budget again is not.
constexpr size_t kMaxAccounts = 4096;
// Between looks for those, which take a while.
constexpr absl::Duration kLookPause = absl::Seconds(1);

class CallWatch final : public grpc::experimental::Interceptor {
 public:
  CallWatch(ResetWatch* watch, grpc::experimental::ServerRpcInfo* info)
      : watch_(watch), info_(info) {}

  void Intercept(grpc::experimental::InterceptorBatchMethods* methods) override {
    using grpc::experimental::InterceptionHookPoints;
    // gRPC sends nothing for a call that was reset already.
    if (methods->QueryInterceptionHookPoint(InterceptionHookPoints::POST_SEND_MESSAGE) &&
        methods->GetSendMessageStatus()) {
      answered_ = true;
    }
    if (methods->QueryInterceptionHookPoint(InterceptionHookPoints::POST_RECV_CLOSE) &&
        info_->server_context()->IsCancelled() && !answered_) {
      watch_->OnAbandoned(info_->server_context()->peer(), SteadyNow() - begin_);
    }
    methods->Proceed();
  }

 private:
  ResetWatch* const watch_;
  grpc::experimental::ServerRpcInfo* const info_;
  const absl::Time begin_ = SteadyNow();
  std::atomic<bool> answered_{false};
};

}  // namespace

double ResetBudget::LeftAt(const Account& account, absl::Time now) {
  return std::min(kBurst, account.left + kPerSecond * absl::ToDoubleSeconds(now - account.as_of));
}

bool ResetBudget::Spend(const std::string& peer, absl::Time now) {
  absl::MutexLock lock(&mutex_);
  if (accounts_.size() >= kMaxAccounts && now >= next_look_) {
    next_look_ = now + kLookPause;
    std::erase_if(accounts_, [&](const auto& each) { return LeftAt(each.second, now) >= kBurst; });
  }
  Account& account = accounts_.try_emplace(peer, Account{kBurst, now}).first->second;
  const double before = LeftAt(account, now);
  account = {before - 1, now};
  return before >= 1 && account.left < 1;
}

grpc::experimental::Interceptor* ResetWatch::CreateServerInterceptor(
    grpc::experimental::ServerRpcInfo* info) {
  return new CallWatch(this, info);
}

void ResetWatch::OnAbandoned(const std::string& peer, absl::Duration open) {
  if (open < ResetBudget::kEarly && budget_.Spend(peer, SteadyNow())) on_flood_(peer);
}

}  // namespace genesis
