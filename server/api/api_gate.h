#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "metrics/metrics.h"
#include "server/api/method_table.h"
#include "server/api/open_watches.h"
#include "server/auth/audit_log.h"
#include "server/auth/caller.h"
#include "server/base/io_threads.h"

namespace genesis {

// The checks before every method, for every transport: authentication, permission, metrics and the
// audit line of the result.
//
// Owner: the daemon. Threads: any. Failure: UNAUTHENTICATED or PERMISSION_DENIED.
class ApiGate {
 public:
  // If `audit` is null, nothing is written to the audit log.
  ApiGate(const Authenticator* authenticator, AuditLog* audit, Metrics* metrics)
      : authenticator_(authenticator), audit_(audit), metrics_(metrics) {}

  // Returns OK if the bearer of `credentials` may call the method. Sets `caller` as far as it is
  // known, also on refusal. A refusal must be passed to Done as well.
  absl::Status Admit(const MethodRow& method, const Credentials& credentials, Caller* caller) const;

  // Called when a call has ended. `protocol`: "grpc" or "http"; `subject`: the id in the request,
  // if any. Mutating calls and refused calls go to the audit log.
  void Done(const MethodRow& method, const std::string& protocol, const Caller& caller,
            const std::string& subject, const absl::Status& status) const;

  // The generation of the rules by which Admit decides.
  uint64_t generation() const { return authenticator_->generation(); }
  OpenWatches& watches() const { return watches_; }
  // Runs a task on the thread that builds the messages of watches, to keep that work off the
  // writer.
  void Post(std::function<void()> task) const { threads_.Post(std::move(task)); }
  // Ends watches whose callers are no longer admitted. Called a few times a second, on one thread.
  void Tend();

 private:
  const Authenticator* const authenticator_;
  AuditLog* const audit_;
  Metrics* const metrics_;
  uint64_t tended_ = 0;  // The last generation seen by Tend.
  mutable OpenWatches watches_;
  mutable IoThreads threads_{1};  // Last, because its tasks use the members above.
};

// One call from its admission to its end. Copyable; the gate outlives it.
class ApiCall {
 public:
  // `protocol`: "grpc" or "http".
  ApiCall(const ApiGate* gate, const MethodRow& method, std::string protocol,
          const Credentials& credentials)
      : gate_(gate),
        method_(&method),
        protocol_(std::move(protocol)),
        credentials_(credentials),
        generation_(std::make_shared<std::atomic<uint64_t>>(gate->generation())) {
    admission_ = gate->Admit(method, credentials, &caller_);
  }

  // OK if the caller may make the call. Otherwise the call must be ended with this status.
  const absl::Status& admission() const { return admission_; }
  const Caller& caller() const { return caller_; }
  const std::string& protocol() const { return protocol_; }
  const ApiGate& gate() const { return *gate_; }

  // For streams, before each message: OK if the caller may still make the call. Tokens are reloaded
  // while the daemon runs.
  absl::Status StillAdmitted() const {
    const uint64_t now = gate_->generation();
    if (now == *generation_) return absl::OkStatus();
    Caller unused;
    absl::Status admitted = gate_->Admit(*method_, credentials_, &unused);
    if (admitted.ok()) *generation_ = now;
    return admitted;
  }

  // Called once, when the call has ended.
  void Done(const std::string& subject, const absl::Status& status) const {
    gate_->Done(*method_, protocol_, caller_, subject, status);
  }

 private:
  const ApiGate* gate_;
  const MethodRow* method_;
  std::string protocol_;
  Credentials credentials_;
  std::shared_ptr<std::atomic<uint64_t>> generation_;  // Generation in which the call was admitted.
  Caller caller_;
  absl::Status admission_;
};

}  // namespace genesis
