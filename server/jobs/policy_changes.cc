// Whether reduced precision may run: the gate, the operator's policy, the watch over failures. A
// part of JobManager.
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/field_error.h"
#include "base/timestamp.h"
#include "config/precision/precision.h"
#include "google/protobuf/util/time_util.h"
#include "server/jobs/job_manager.h"
#include "server/jobs/job_state.h"
#include "spdlog/spdlog.h"

namespace genesis {
namespace {

using training::v1::Job;
using training::v1::PrecisionPolicy;
using training::v1::SetPrecisionPolicyRequest;
using training::v1::SetPrecisionPolicyResponse;

constexpr char kPolicyKey[] = "precision_policy";
constexpr size_t kLongestReason = 1000;

std::string Describe(const PrecisionPolicy& policy) {
  return absl::StrCat(
      "disabled by the precision policy of ",
      google::protobuf::util::TimeUtil::ToString(policy.change_time()),
      policy.changed_by().empty() ? "" : absl::StrCat(" (", policy.changed_by(), ")"),
      policy.reason().empty() ? "" : absl::StrCat(": ", policy.reason()));
}

bool RunsReduced(const Job& job) {
  return IsTraining(job.state()) && IsReducedPrecision(job.precision().mode());
}

}  // namespace

void JobManager::LoadPolicy() {
  PrecisionPolicy policy;
  policy.set_reduced_precision_allowed(true);
  if (const std::optional<std::string> stored = table_.Metadata(kPolicyKey))
    policy.ParseFromString(*stored);
  PublishPolicy(policy);
}

// Any no wins, and all of them are named.
void JobManager::PublishPolicy(const PrecisionPolicy& policy) {
  PrecisionGate gate = options_.gate;
  std::vector<std::string> noes;
  if (!gate.enabled) noes.push_back(gate.reason);
  if (!policy.reduced_precision_allowed()) noes.push_back(Describe(policy));
  if (failure_watch_.closes_gate()) {
    noes.push_back(absl::StrCat("disabled by precision.failure_watch: ", failure_watch_.reason(),
                                "; restart genesisd to try it again"));
  }
  if (!noes.empty()) {
    gate.enabled = false;
    gate.reason = absl::StrJoin(noes, "; ");
  }
  absl::MutexLock lock(&policy_mutex_);
  policy_ = policy;
  gate_ = std::move(gate);
}

PrecisionGate JobManager::gate() const {
  absl::MutexLock lock(&policy_mutex_);
  return gate_;
}

PrecisionPolicy JobManager::policy() const {
  absl::MutexLock lock(&policy_mutex_);
  return policy_;
}

void JobManager::SetPolicy(const SetPrecisionPolicyRequest& request, const Caller& caller,
                           const Callback<SetPrecisionPolicyResponse>& callback) {
  if (request.reason().size() > kLongestReason) {
    return callback(ToStatus({{"reason", absl::StrCat(request.reason().size(), " bytes"),
                               absl::StrCat("at most ", kLongestReason, " bytes")}}));
  }
  PrecisionPolicy policy;
  policy.set_reduced_precision_allowed(request.reduced_precision_allowed());
  policy.set_reason(request.reason());
  policy.set_changed_by(caller.name);
  *policy.mutable_change_time() = TimestampNow();
  writer_.Post(
      {[this, request, policy, callback] { ApplyPolicy(request, policy, callback); }, callback});
}

void JobManager::ApplyPolicy(const SetPrecisionPolicyRequest& request,
                             const PrecisionPolicy& policy,
                             const Callback<SetPrecisionPolicyResponse>& callback) {
  table_.PutMetadata(kPolicyKey, policy.SerializeAsString());
  table_.Count([this, policy] {
    PublishPolicy(policy);
    spdlog::warn("precision policy: reduced precision is {} by {}: {}",
                 policy.reduced_precision_allowed() ? "left to the gate" : "disabled",
                 policy.changed_by(), policy.reason());
    if (!gate().enabled) spdlog::info("FP16 training disabled - using FP32");
  });
  int affected = 0;
  for (const std::string& id : table_.Ids()) {
    const Job& job = *table_.Find(id);
    if (!RunsReduced(job)) continue;
    ++affected;
    if (request.reduced_precision_allowed()) continue;
    if (request.application() == training::v1::POLICY_APPLICATION_NEXT_STEP) {
      LeaveReducedPrecision(id);
    } else if (request.application() == training::v1::POLICY_APPLICATION_AT_ONCE &&
               !stops_.contains(id)) {
      StopFor(id, {StopCause::kPolicy, Describe(policy)});
    }
  }
  table_.Announce([this, policy, affected, callback] {
    SetPrecisionPolicyResponse response;
    *response.mutable_policy() = policy;
    response.set_reduced_precision_enabled(gate().enabled);
    response.set_affected_jobs(affected);
    callback(response);
  });
}

}  // namespace genesis
