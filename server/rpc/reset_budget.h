#pragma once

#include <grpcpp/support/server_interceptor.h>

#include <functional>
#include <map>
#include <string>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"

namespace genesis {

// A `ResetBudget` counts the calls that each connection abandons early, before it had an answer.
// HTTP/2 bounds the calls that are open at one time, and one that is reset is not open: a client
// that opens and resets calls without end takes time and memory without a bound (CVE-2023-44487,
// "rapid reset"; gRPC 1.51 has no limit of its own).
//
// Thread-safe.
class ResetBudget {
 public:
  // Calls that a connection may abandon at one time: as many as it may have open.
  static constexpr double kBurst = 1000;
  // Calls that are forgotten each second.
  static constexpr double kPerSecond = 50;
  // A call that was open for longer is not counted: a client may give up.
  static constexpr absl::Duration kEarly = absl::Seconds(1);

  // A connection has abandoned a call. True when it has used up its budget, once.
  bool Spend(const std::string& peer, absl::Time now);

 private:
  struct Account {
    double left = kBurst;
    absl::Time as_of;
  };
  static double LeftAt(const Account& account, absl::Time now);

  absl::Mutex mutex_;
  std::map<std::string, Account> accounts_ ABSL_GUARDED_BY(mutex_);
  absl::Time next_look_ ABSL_GUARDED_BY(mutex_) = absl::InfinitePast();
};

// Watches the calls of a gRPC server, whatever their service, and tells of each connection that has
// used up its budget.
//
// Owner: the gRPC server. Threads: gRPC's, which call `on_flood` with the peer as gRPC names it.
class ResetWatch final : public grpc::experimental::ServerInterceptorFactoryInterface {
 public:
  using OnFlood = std::function<void(const std::string& peer)>;
  explicit ResetWatch(OnFlood on_flood) : on_flood_(std::move(on_flood)) {}

  grpc::experimental::Interceptor* CreateServerInterceptor(
      grpc::experimental::ServerRpcInfo* info) override;
  // The client cancelled a call before it had an answer.
  void OnAbandoned(const std::string& peer, absl::Duration open);

 private:
  const OnFlood on_flood_;
  ResetBudget budget_;
};

}  // namespace genesis
