#include "server/jobs/precision_control.h"

#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/text/field_error.h"
#include "base/timestamp.h"
#include "config/precision/precision.h"
#include "genesis/training/v1/worker_service.pb.h"
#include "google/protobuf/util/time_util.h"
#include "server/ledger/job_state.h"
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

void PrecisionControl::Load() {
  PrecisionPolicy policy;
  policy.set_reduced_precision_allowed(true);
  if (const std::optional<std::string> stored = table_.Metadata(kPolicyKey))
    policy.ParseFromString(*stored);
  PublishPolicy(policy);
}

// Publishes policy and gate. Each source can close the gate, and the reason names all that do.
void PrecisionControl::PublishPolicy(const PrecisionPolicy& policy) {
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

void PrecisionControl::SetFailureWatch(FailureWatchAction action) {
  failure_watch_.SetAction(action);
  PublishPolicy(policy());
}

PrecisionGate PrecisionControl::gate() const {
  absl::MutexLock lock(&policy_mutex_);
  return gate_;
}

PrecisionPolicy PrecisionControl::policy() const {
  absl::MutexLock lock(&policy_mutex_);
  return policy_;
}

void PrecisionControl::SetPolicy(const SetPrecisionPolicyRequest& request, const Caller& caller,
                                 const Callback<SetPrecisionPolicyResponse>& callback) {
  if (request.reason().size() > kLongestReason) {
    return callback(ToStatus({{"reason", absl::StrCat(request.reason().size(), " bytes"),
                               absl::StrCat("at most ", kLongestReason, " bytes")}}));
  }
  PrecisionPolicy policy;
  policy.set_reduced_precision_allowed(request.reduced_precision_allowed());
  policy.set_reason(request.reason());
  policy.set_changed_by(caller.name);
  *policy.mutable_change_time() = ToTimestamp(clock_.Now());
  writer_.Post(
      {[this, request, policy, callback] { ApplyPolicy(request, policy, callback); }, callback});
}

void PrecisionControl::ApplyPolicy(const SetPrecisionPolicyRequest& request,
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
      Leave(id);
    } else if (request.application() == training::v1::POLICY_APPLICATION_AT_ONCE &&
               stops_.Find(id) == nullptr) {
      stops_.Stop(id, {StopCause::kPolicy, Describe(policy)});
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

void PrecisionControl::Leave(const std::string& job_id) {
  table_.Announce([this, job_id] {
    training::v1::AttachResponse leave;
    leave.mutable_leave_reduced_precision()->set_reason(gate().reason);
    workers_->Send(job_id, leave);
  });
}

void PrecisionControl::OnJobEnded(const Job& ended) {
  const bool failed = ended.state() == training::v1::JOB_STATE_FAILED;
  const training::v1::FailureCause cause = ended.failure().cause();
  const bool telling = ended.state() == training::v1::JOB_STATE_SUCCEEDED ||
                       (failed && cause != training::v1::FAILURE_CAUSE_CONFIG &&
                        cause != training::v1::FAILURE_CAUSE_DATA);
  // A job that took steps in reduced precision counts, even if it fell back to FP32 and failed
  // there, because its precision may be the cause.
  const bool reduced = ended.progress().reduced_precision_steps() > 0;
  if (!telling || !reduced || !failure_watch_.Add(failed)) return;
  table_.Count([this, reason = failure_watch_.reason(), closes = failure_watch_.closes_gate()] {
    PublishPolicy(policy());
    spdlog::error("precision.failure_watch: {}{}", reason,
                  closes ? "; new attempts start in FP32 until genesisd is restarted" : "");
    metrics_->IncidentSeen("failures");
  });
}

}  // namespace genesis
