// What workers report on precision and accuracy while a job runs: a part of the worker side of
// JobManager (worker_reports.cc). Every method here runs on the writer thread.
#include "absl/strings/str_cat.h"
#include "config/precision/precision.h"
#include "server/jobs/job_manager.h"
#include "spdlog/spdlog.h"

namespace genesis {
namespace {

// The newest of what a job's record holds.
template <typename Message>
void AddBounded(const Message& message, google::protobuf::RepeatedPtrField<Message>& list) {
  constexpr int kMax = 64;
  if (list.size() == kMax) list.DeleteSubrange(0, 1);
  *list.Add() = message;
}

}  // namespace

void JobManager::WatchFailures(const Job& ended) {
  const bool failed = ended.state() == training::v1::JOB_STATE_FAILED;
  const training::v1::FailureCause cause = ended.failure().cause();
  const bool telling = ended.state() == training::v1::JOB_STATE_SUCCEEDED ||
                       (failed && cause != training::v1::FAILURE_CAUSE_CONFIG &&
                        cause != training::v1::FAILURE_CAUSE_DATA);
  // What it began in: a job that fell back to FP32 and failed there failed for its precision too.
  const bool reduced = ended.progress().reduced_precision_steps() > 0;
  if (!telling || !reduced || !failure_watch_.Add(failed)) return;
  table_.Count([this, reason = failure_watch_.reason(), closes = failure_watch_.closes_gate()] {
    PublishPolicy(policy());
    spdlog::error("precision.failure_watch: {}{}", reason,
                  closes ? "; new attempts start in FP32 until genesisd is restarted" : "");
    metrics_->IncidentSeen("failures");
  });
}

void JobManager::OnPrecisionChanged(const Job& job, const training::v1::PrecisionChange& change) {
  Job* changed = table_.Edit(job.id());
  AddBounded(change, *changed->mutable_precision_changes());
  training::v1::JobEvent event;
  *event.mutable_precision_changed() = change;
  table_.AddEvent(job.id(), std::move(event));
  training::v1::EffectivePrecision& precision = *changed->mutable_precision();
  precision.set_mode(change.to());
  precision.set_execution(change.execution());
  precision.set_reason(absl::StrCat(PrecisionName(change.to()), ": ", change.trigger(), " at step ",
                                    change.step(), ": ", change.reason()));
  precision.add_refused(absl::StrCat(PrecisionName(change.from()), ": left at step ", change.step(),
                                     ": ", change.reason()));
  table_.Count([this, id = job.id(), change, now = precision] {
    spdlog::warn(
        "job {}: precision changed from {} to {} at step {} ({}), training goes on from "
        "step {}: {}",
        id, PrecisionName(change.from()), PrecisionName(change.to()), change.step(),
        change.trigger(), change.resumed_step(), change.reason());
    metrics_->PrecisionChanged(change.trigger());
    metrics_->SetEffectivePrecision(id, now);
  });
}

void JobManager::OnIncident(const Job& job, const training::v1::Incident& incident) {
  AddBounded(incident, *table_.Edit(job.id())->mutable_incidents());
  training::v1::JobEvent event;
  *event.mutable_incident() = incident;
  table_.AddEvent(job.id(), std::move(event));
  table_.Count([this, id = job.id(), incident] {
    spdlog::warn("job {}: incident ({}): {}", id, incident.rule(), incident.message());
    metrics_->IncidentSeen(incident.rule());
  });
}

void JobManager::OnEvaluated(const Job& job, const training::v1::Evaluation& evaluation) {
  Job* evaluated = table_.Edit(job.id());
  *evaluated->mutable_evaluation() = evaluation;
  NoteHistory(*evaluated);
  training::v1::JobEvent event;
  *event.mutable_evaluated() = evaluation;
  table_.AddEvent(job.id(), std::move(event));
  table_.Count([this, id = job.id(), evaluation] { metrics_->Evaluated(id, evaluation.loss()); });
}

}  // namespace genesis
