#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/time/clock.h"
#include "metrics/metrics.h"
#include "server/api/method_table.h"
#include "server/api/open_watches.h"
#include "server/auth/audit_log.h"
#include "server/auth/caller.h"
#include "server/auth/request_rate.h"
#include "server/base/io_threads.h"

namespace genesis {

// The checks and records that surround every method, for every transport: authentication,
// permission, metrics and the audit log.
//
// Owner: the daemon. Threads: any. Failure: UNAUTHENTICATED or PERMISSION_DENIED.
class ApiGate {
 public:
  // If `audit` is null, nothing is written to the audit log.
  ApiGate(const Authenticator* authenticator, AuditLog* audit, Metrics* metrics)
      : authenticator_(authenticator), audit_(audit), metrics_(metrics) {}

  // Returns OK if the holder of `credentials` may call the method. Sets `caller` as far as it is
  // known, even on refusal. A refusal must also be passed to Done.
  absl::Status Admit(const MethodRow& method, const Credentials& credentials, Caller* caller) const;

  // Called when a call has ended. `protocol` is "grpc" or "http". `subject` is the ID in the
  // request, if any. Writes refused calls and those of audited methods to the audit log.
  void Done(const MethodRow& method, const std::string& protocol, const Caller& caller,
            const std::string& subject, const absl::Status& status) const;

  // Counts a call that was admitted. RESOURCE_EXHAUSTED if its caller makes too many; admins and
  // workers may make any number.
  absl::Status Count(const Caller& caller) const;
  // Sets the calls per second of each caller; 0 for no limit.
  void SetRequestRate(int per_second) { rate_.Set(per_second); }

  // Returns the generation of the rules that Admit applies.
  uint64_t generation() const { return authenticator_->generation(); }
  OpenWatches& watches() const { return watches_; }
  // Runs a task on the thread that builds watch messages. The writer thread
  // does not build them, because it must not fall behind.
  void Post(std::function<void()> task) const { threads_.Post(std::move(task)); }
  // Ends watches whose callers are no longer admitted. One thread calls it a few times a second.
  void Tend() { watches_.CheckAdmissions(); }

 private:
  const Authenticator* const authenticator_;
  AuditLog* const audit_;
  Metrics* const metrics_;
  mutable RequestRate rate_;
  mutable OpenWatches watches_;
  mutable IoThreads threads_{1};  // Last, because its tasks use the members above.
};

// One call, from admission to end. Copyable. The gate must outlive it.
class ApiCall {
 public:
  // `protocol`: "grpc" or "http".
  ApiCall(const ApiGate* gate, const MethodRow& method, std::string protocol,
          const Credentials& credentials)
      : gate_(gate),
        method_(&method),
        protocol_(std::move(protocol)),
        credentials_(std::make_shared<const Credentials>(credentials)),
        generation_(std::make_shared<std::atomic<uint64_t>>(gate->generation())) {
    admission_ = gate->Admit(method, credentials, &caller_);
    if (admission_.ok()) admission_ = gate->Count(caller_);
    caller_.traceparent = credentials.traceparent;
    caller_.credentials = credentials_;
    caller_.check = [call = *this] { return call.StillWanted(); };
  }

  // OK if the caller may make the call; otherwise the status with which the call must end.
  const absl::Status& admission() const { return admission_; }
  const Caller& caller() const { return caller_; }
  const std::string& protocol() const { return protocol_; }
  const ApiGate& gate() const { return *gate_; }

  // Called before each message of a stream, because tokens may be reloaded or expire while it runs.
  // Returns OK if the caller may still make the call.
  absl::Status StillAdmitted() const {
    const uint64_t now = gate_->generation();
    if (now == *generation_ && absl::Now() < caller_.end) return absl::OkStatus();
    Caller unused;
    absl::Status admitted = gate_->Admit(*method_, *credentials_, &unused);
    if (admitted.ok()) *generation_ = now;
    return admitted;
  }

  // Same, and CANCELLED once the caller is gone.
  absl::Status StillWanted() const {
    if (credentials_->is_gone != nullptr && credentials_->is_gone()) {
      return absl::CancelledError("the caller is gone");
    }
    return StillAdmitted();
  }

  // Called once, when the call has ended.
  void Done(const std::string& subject, const absl::Status& status) const {
    gate_->Done(*method_, protocol_, caller_, subject, status);
  }

 private:
  const ApiGate* gate_;
  const MethodRow* method_;
  std::string protocol_;
  std::shared_ptr<const Credentials> credentials_;
  std::shared_ptr<std::atomic<uint64_t>> generation_;  // Generation of the rules last applied.
  Caller caller_;
  absl::Status admission_;
};

}  // namespace genesis
