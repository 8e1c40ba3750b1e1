#include "server/jobs/worker_reports.h"

#include <algorithm>
#include <filesystem>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "base/text/field_error.h"
#include "base/text/message_text.h"
#include "config/precision/precision.h"
#include "server/jobs/gang.h"
#include "server/ledger/history_row.h"
#include "server/ledger/job_state.h"
#include "spdlog/spdlog.h"

namespace genesis {
namespace {

using training::v1::AttachRequest;
using training::v1::Finished;
using training::v1::Job;

training::v1::JobEvent LogLineEvent(const std::string& line) {
  training::v1::JobEvent event;
  event.set_log_line(line);
  return event;
}

// Returns true if the job's history gets a row for this report: after the first step, then each
// time another twentieth of the steps is done.
bool IsMilestone(int64_t step_before, const training::v1::Progress& progress) {
  constexpr int64_t kParts = 20;
  if (progress.step() <= step_before || progress.total_steps() <= 0) return false;
  const auto part = [&](int64_t step) { return step * kParts / progress.total_steps(); };
  return step_before == 0 || part(progress.step()) > part(step_before);
}

// Returns true if `name` is "<job_id>-step-<number>", as workers name their checkpoints.
bool IsStepOf(const std::string& job_id, absl::string_view name) {
  return absl::ConsumePrefix(&name, job_id) && absl::ConsumePrefix(&name, "-step-") &&
         !name.empty() && std::all_of(name.begin(), name.end(), absl::ascii_isdigit);
}

// Returns true if the checkpoint belongs to the job and lies in `folder`.
bool IsOwnCheckpoint(const Job& job, const training::v1::Checkpoint& checkpoint,
                     const std::string& folder) {
  namespace fs = std::filesystem;
  const fs::path path = checkpoint.path();
  return checkpoint.job_id() == job.id() && checkpoint.name().empty() &&
         IsStepOf(job.id(), checkpoint.id()) && IsStepOf(job.id(), path.stem().string()) &&
         path.parent_path() == fs::absolute(folder).lexically_normal();
}

// Appends to a list in a job's record that keeps the newest 64 entries.
template <typename Message>
void AddBounded(const Message& message, google::protobuf::RepeatedPtrField<Message>& list) {
  constexpr int kMax = 64;
  if (list.size() == kMax) list.DeleteSubrange(0, 1);
  *list.Add() = message;
}

}  // namespace

void WorkerReports::OnCapacity() {
  writer_.Post({[this] { dispatcher_.StartQueued(); }, nullptr});
}

void WorkerReports::OnWorkerEvent(const AttachRequest& event, int rank) {
  // Workers are untrusted: bound every string before it is stored or displayed.
  AttachRequest bounded = event;
  BoundTexts(bounded);
  writer_.Post({[this, rank, bounded = std::move(bounded)] {
                  rank == 0 ? Report(bounded) : ReportOfRank(bounded, rank);
                },
                nullptr});
}

void WorkerReports::OnWorkerBack(const std::string& job_id, int64_t claim) {
  writer_.Post({[this, job_id, claim] {
                  if (attempts_.IsCurrent(job_id, claim)) OnBack(*table_.Find(job_id));
                },
                nullptr});
}

void WorkerReports::OnWorkerHung(const std::string& job_id, int64_t claim, int rank,
                                 const std::string& what) {
  writer_.Post({[this, job_id, claim, rank, what] {
                  if (!attempts_.IsCurrent(job_id, claim)) return;
                  const Job& job = *table_.Find(job_id);
                  const bool gang = IsGang(job);
                  // Ranks wait for each other, so the first late one need not be the hung one.
                  stops_.NoteHang(
                      job_id, absl::StrCat(gang ? DescribeRank(job, rank) : "the worker", " made ",
                                           what, gang ? ", or waited for a rank that hangs" : ""));
                },
                nullptr});
}

void WorkerReports::OnWorkerGone(const WorkerExit& exit) {
  writer_.Post({[this, exit] { attempts_.OnLost(exit); }, nullptr});
}

void WorkerReports::Report(const AttachRequest& event) {
  if (!attempts_.IsCurrent(event.job_id(), event.claim())) {
    spdlog::warn("a report on job {} carries claim {}, which is not its present one; refused",
                 event.job_id(), event.claim());
    return;
  }
  if (event.sequence() != 0) {
    Job* job = table_.Edit(event.job_id());
    const int64_t known = job->worker_sequence();
    table_.Announce([this, id = job->id(), sequence = std::max(known, event.sequence())] {
      workers_->Acknowledge(id, sequence);
    });
    // A worker that reattached resends everything that it does not know to be durable.
    if (event.sequence() <= known) return;
    job->set_worker_sequence(event.sequence());
  }
  Dispatch(event);
}

void WorkerReports::ReportOfRank(const AttachRequest& event, int rank) {
  const std::string& id = event.job_id();
  // Once rank 0 has reported the end of the job, the ends of other ranks are ignored.
  if (!attempts_.IsCurrent(id, event.claim())) return;
  const Job& job = *table_.Find(id);
  switch (event.event_case()) {
    case AttachRequest::kSteps:
      return NoteRank(event.steps(), rank, *table_.EditVolatile(id));
    case AttachRequest::kFinished:
      return attempts_.OnFinished(job, rank, event.finished());
    case AttachRequest::kLogLine:
      return OnLogLine(id, absl::StrCat("rank ", rank, ": ", event.log_line().text()));
    default:
      return;
  }
}

void WorkerReports::OnLogLine(const std::string& job_id, const std::string& line) {
  spdlog::info("job {}: {}", job_id, line);
  table_.AddEventLazily(job_id, LogLineEvent(line));
}

void WorkerReports::Dispatch(const AttachRequest& event) {
  const Job& job = *table_.Find(event.job_id());
  switch (event.event_case()) {
    case AttachRequest::kStarted:
      return OnStarted(job, event.started());
    case AttachRequest::kSteps:
      return OnSteps(job, event.steps());
    case AttachRequest::kCheckpointWritten:
      return OnCheckpoint(job, event.checkpoint_written());
    case AttachRequest::kPrecisionChanged:
      return OnPrecisionChanged(job, event.precision_changed());
    case AttachRequest::kIncident:
      return OnIncident(job, event.incident());
    case AttachRequest::kEvaluated:
      return OnEvaluated(job, event.evaluated());
    case AttachRequest::kFinished:
      return attempts_.OnFinished(job, /*rank=*/0, event.finished());
    case AttachRequest::kLogLine:
      return OnLogLine(job.id(), event.log_line().text());
    case AttachRequest::kStoreRequest:
    case AttachRequest::kSectionEntered:
    case AttachRequest::kHello:
    case AttachRequest::EVENT_NOT_SET:
      return;
  }
}

// Resends requests that the worker missed while disconnected.
void WorkerReports::OnBack(const Job& job) {
  const StopRequest* const stop = stops_.Find(job.id());
  if (dispatcher_.draining() || job.state() == training::v1::JOB_STATE_CANCELLING ||
      job.state() == training::v1::JOB_STATE_PAUSING) {
    stops_.Ask(job, /*checkpoint=*/true, job.state_reason());
  } else if (stop != nullptr) {
    stops_.Ask(job, stop->cause != StopCause::kPolicy, stop->reason);
  } else if (!precision_.gate().enabled && IsReducedPrecision(job.precision().mode())) {
    precision_.Leave(job.id());
  }
  if (checkpoints_.IsAwaited(job.id())) {
    table_.Announce([this, id = job.id()] { checkpoints_.Send(id); });
  }
}

void WorkerReports::OnStarted(const Job& job, const training::v1::Started& started) {
  if (job.state() != training::v1::JOB_STATE_STARTING) return;
  const std::string id = job.id();
  ledger_.Move(id, training::v1::JOB_STATE_RUNNING,
               started.resumed_step() == 0
                   ? "training"
                   : absl::StrCat("training, continued from step ", started.resumed_step()));
  Job* running = table_.Edit(id);
  running->mutable_progress()->set_total_steps(started.total_steps());
  running->mutable_progress()->set_step(started.resumed_step());
  table_.Count([this, id] { attempts_.OnStarted(id); });
  if (!started.has_precision()) return;
  *running->mutable_precision() = started.precision();
  table_.Announce(
      [this, id, precision = started.precision()] { stats_.NotePrecision(id, precision); });
}

void WorkerReports::OnSteps(const Job& job, const training::v1::Steps& steps) {
  // Each report covers one mode. Workers of older versions did not name it.
  const training::v1::PrecisionMode mode =
      steps.progress().mode() == training::v1::PRECISION_MODE_UNSPECIFIED ? job.precision().mode()
                                                                          : steps.progress().mode();
  const bool milestone = IsMilestone(job.progress().step(), steps.progress());
  Job* running = table_.EditVolatile(job.id());
  *running->mutable_progress() = steps.progress();
  NoteRank(steps, /*rank=*/0, *running);
  if (milestone) NoteHistory(*running);
  table_.Count(
      [this, id = job.id(), steps, mode] { stats_.NoteSteps(id, steps, mode, clock_.Steady()); });
}

void WorkerReports::NoteRank(const training::v1::Steps& steps, int rank, Job& job) {
  NoteRankSteps(steps, clock_.Now(), rank, job);
  const std::optional<double> wait = LongestWait(job);
  if (!wait) return;
  table_.Count([this, id = job.id(), wait = *wait] { stats_.NoteWait(id, wait); });
}

void WorkerReports::NoteHistory(const Job& job) {
  table_.Count([this, job] {
    options_.on_history(MakeHistoryRow(job, precision_.gate().enabled,
                                       stats_.DeviceMemoryOf(job.id()), clock_.Now()));
  });
}

void WorkerReports::OnCheckpoint(const Job& job, const training::v1::CheckpointWritten& written) {
  const std::string& id = job.id();
  const training::v1::Checkpoint& checkpoint = written.checkpoint();
  if (!IsOwnCheckpoint(job, checkpoint, options_.checkpoints_dir)) {
    spdlog::warn("job {}: its worker reports checkpoint {} of job {} at {}; refused", id,
                 QuoteValue(checkpoint.id()), QuoteValue(checkpoint.job_id()),
                 QuoteValue(checkpoint.path()));
    return;
  }
  // If the requested step already has a checkpoint, the worker reports that one again.
  if (job.latest_checkpoint().id() == checkpoint.id()) {
    table_.Announce([this, id, checkpoint] { checkpoints_.Answer(id, checkpoint); });
    return;
  }
  table_.PutCheckpoint(checkpoint);
  training::v1::JobEvent event;
  *event.mutable_checkpoint_written() = checkpoint;
  table_.AddEvent(id, std::move(event));
  for (const std::string& removed : written.removed_ids()) {
    if (IsStepOf(id, removed)) table_.RemoveCheckpoint(removed);
  }
  *table_.Edit(id)->mutable_latest_checkpoint() = checkpoint;
  table_.Count([this, id, written] {
    attempts_.OnCheckpoint(id, clock_.Now() - absl::Seconds(std::max(written.seconds(), 0.0)));
    spdlog::info("job {}: checkpoint {} at step {}, {} bytes in {:.3f} s", id,
                 written.checkpoint().path(), written.checkpoint().step(),
                 written.checkpoint().size_bytes(), written.seconds());
    metrics_->CheckpointWritten(written.seconds(), written.checkpoint().size_bytes());
  });
  table_.Announce([this, id, checkpoint] { checkpoints_.Answer(id, checkpoint); });
}

void WorkerReports::OnPrecisionChanged(const Job& job,
                                       const training::v1::PrecisionChange& change) {
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
    const bool falls = change.trigger() != "promotion";
    spdlog::warn(
        "job {}: {}precision changed from {} to {} at step {} ({}), training goes on from "
        "step {}: {}",
        id, falls ? absl::StrCat("Falling back to ", PrecisionName(change.to()), ": ") : "",
        PrecisionName(change.from()), PrecisionName(change.to()), change.step(), change.trigger(),
        change.resumed_step(), change.reason());
    metrics_->PrecisionChanged(change.trigger());
    stats_.NotePrecision(id, now);
  });
}

void WorkerReports::OnIncident(const Job& job, const training::v1::Incident& incident) {
  AddBounded(incident, *table_.Edit(job.id())->mutable_incidents());
  training::v1::JobEvent event;
  *event.mutable_incident() = incident;
  table_.AddEvent(job.id(), std::move(event));
  table_.Count([this, id = job.id(), incident] {
    spdlog::warn("job {}: incident ({}): {}", id, incident.rule(), incident.message());
    metrics_->IncidentSeen(incident.rule());
  });
}

void WorkerReports::OnEvaluated(const Job& job, const training::v1::Evaluation& evaluation) {
  Job* evaluated = table_.Edit(job.id());
  *evaluated->mutable_evaluation() = evaluation;
  NoteHistory(*evaluated);
  training::v1::JobEvent event;
  *event.mutable_evaluated() = evaluation;
  table_.AddEvent(job.id(), std::move(event));
  table_.Count([this, id = job.id(), evaluation] { stats_.NoteHeldOut(id, evaluation.loss()); });
}

}  // namespace genesis
