#include "server/jobs/worker_reports.h"

#include <google/protobuf/util/message_differencer.h>

#include <algorithm>
#include <filesystem>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "base/text/enum_names.h"
#include "base/text/field_error.h"
#include "base/text/message_text.h"
#include "config/precision/precision.h"
#include "server/base/job_log.h"
#include "server/jobs/gang.h"
#include "server/ledger/history_row.h"
#include "server/ledger/job_state.h"
#include "spdlog/spdlog.h"

namespace genesis {
namespace {

using google::protobuf::util::MessageDifferencer;
using training::v1::AttachRequest;
using training::v1::Finished;
using training::v1::Job;

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
  context_.writer.Post({[this] { context_.dispatcher.StartQueued(); }, nullptr});
}

void WorkerReports::OnWorkerEvent(const AttachRequest& event, int rank) {
  // Workers are untrusted: bound every string before it is stored or displayed.
  AttachRequest bounded = event;
  BoundTexts(bounded);
  context_.writer.Post({[this, rank, bounded = std::move(bounded)] {
                          rank == 0 ? Report(bounded) : ReportOfRank(bounded, rank);
                        },
                        nullptr});
}

void WorkerReports::OnWorkerBack(const std::string& job_id, int64_t claim) {
  context_.writer.Post({[this, job_id, claim] {
                          if (!attempts_.IsCurrent(job_id, claim)) return;
                          OnBack(*context_.table.Find(job_id));
                        },
                        nullptr});
}

void WorkerReports::OnWorkerHung(const std::string& job_id, int64_t claim, int rank,
                                 const std::string& what) {
  context_.writer.Post({[this, job_id, claim, rank, what] {
                          if (!attempts_.IsCurrent(job_id, claim)) return;
                          const Job& job = *context_.table.Find(job_id);
                          const bool gang = IsGang(job);
                          // Ranks wait for each other, so this rank may only wait for a hung one.
                          context_.stops.NoteHang(
                              job_id,
                              absl::StrCat(gang ? DescribeRank(job, rank) : "the worker", " made ",
                                           what, gang ? ", or waited for a rank that hangs" : ""));
                        },
                        nullptr});
}

void WorkerReports::OnWorkerGone(const WorkerExit& exit) {
  context_.writer.Post({[this, exit] { attempts_.OnLost(exit); }, nullptr});
}

void WorkerReports::Report(const AttachRequest& event) {
  if (!attempts_.IsCurrent(event.job_id(), event.claim())) {
    spdlog::warn("a report on job {} carries claim {}, which is not its present one; refused",
                 event.job_id(), event.claim());
    return;
  }
  if (event.sequence() != 0) {
    Job* job = context_.table.Edit(event.job_id());
    const int64_t known = job->worker_sequence();
    context_.table.Announce([this, id = job->id(), sequence = std::max(known, event.sequence())] {
      context_.workers->Acknowledge(id, sequence);
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
  const Job& job = *context_.table.Find(id);
  switch (event.event_case()) {
    case AttachRequest::kSteps:
      return NoteRank(event.steps(), rank, *context_.table.EditVolatile(id));
    case AttachRequest::kFinished:
      return attempts_.OnFinished(job, rank, event.finished());
    case AttachRequest::kLogLine:
      return OnLogLine(id, absl::StrCat("rank ", rank, ": ", event.log_line().text()));
    default:
      return;
  }
}

void WorkerReports::OnLogLine(const std::string& job_id, const std::string& line) {
  JobLog(*context_.table.Find(job_id)).Info("{}", line);
  context_.table.AddLogLine(job_id, line);
}

void WorkerReports::Dispatch(const AttachRequest& event) {
  const Job& job = *context_.table.Find(event.job_id());
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
    case AttachRequest::kWaitingForData:
      context_.table.EditVolatile(job.id())->set_waiting_reason(event.waiting_for_data().reason());
      return;
    case AttachRequest::kStoreRequest:
    case AttachRequest::kSectionEntered:
    case AttachRequest::kHello:
    case AttachRequest::EVENT_NOT_SET:
      return;
  }
}

// Resends requests that the worker missed while disconnected.
void WorkerReports::OnBack(const Job& job) {
  const StopRequest* const stop = context_.stops.Find(job.id());
  if (context_.dispatcher.draining() || job.state() == training::v1::JOB_STATE_CANCELLING ||
      job.state() == training::v1::JOB_STATE_PAUSING) {
    context_.stops.Ask(job, /*checkpoint=*/true, job.state_reason());
  } else if (stop != nullptr) {
    context_.stops.Ask(job, stop->cause != StopCause::kPolicy, stop->reason);
  } else if (!context_.precision.gate().enabled && IsReducedPrecision(job.precision().mode())) {
    context_.precision.Leave(job.id());
  }
  if (context_.checkpoints.IsAwaited(job.id())) {
    context_.table.Announce([this, id = job.id()] { context_.checkpoints.SendAgain(id); });
  }
  metric_reports_.Send(job);
}

void WorkerReports::OnStarted(const Job& job, const training::v1::Started& started) {
  if (job.state() != training::v1::JOB_STATE_STARTING) return;
  const std::string id = job.id();
  context_.ledger.Move(id, training::v1::JOB_STATE_RUNNING,
                       started.resumed_step() == 0 ? "training"
                                                   : absl::StrCat("training, continued from step ",
                                                                  started.resumed_step()));
  Job* running = context_.table.Edit(id);
  running->mutable_progress()->set_total_steps(started.total_steps());
  running->mutable_progress()->set_step(started.resumed_step());
  running->clear_first_step_time();
  context_.table.Count([this, id] { attempts_.OnStarted(id); });
  if (!started.has_precision()) return;
  *running->mutable_precision() = started.precision();
  context_.table.Announce(
      [this, id, precision = started.precision()] { context_.stats.NotePrecision(id, precision); });
}

void WorkerReports::OnSteps(const Job& job, const training::v1::Steps& steps) {
  // Each report covers one mode. Workers of older versions did not name it.
  const training::v1::PrecisionMode mode =
      steps.progress().mode() == training::v1::PRECISION_MODE_UNSPECIFIED ? job.precision().mode()
                                                                          : steps.progress().mode();
  const bool milestone = IsMilestone(job.progress().step(), steps.progress());
  const bool first = !job.has_first_step_time() && steps.new_steps() > 0;
  Job* running = first ? context_.table.Edit(job.id()) : context_.table.EditVolatile(job.id());
  if (first) *running->mutable_first_step_time() = ToTimestamp(context_.clock.Now());
  *running->mutable_progress() = steps.progress();
  running->clear_waiting_reason();
  NoteRank(steps, /*rank=*/0, *running);
  if (milestone) NoteHistory(*running);
  context_.table.Count([this, id = job.id(), steps, mode] {
    context_.stats.NoteSteps(id, steps, mode, context_.clock.Steady());
  });
}

void WorkerReports::NoteRank(const training::v1::Steps& steps, int rank, Job& job) {
  NoteRankSteps(steps, context_.clock.Now(), rank, job);
  const std::optional<double> wait = LongestWait(job);
  if (!wait) return;
  context_.table.Count([this, id = job.id(), wait = *wait] { context_.stats.NoteWait(id, wait); });
}

void WorkerReports::NoteHistory(const Job& job) {
  context_.table.Count([this, job] {
    context_.options.on_history(MakeHistoryRow(job, context_.precision.gate().enabled,
                                               context_.stats.DeviceMemoryOf(job.id()),
                                               context_.clock.Now()));
  });
}

void WorkerReports::OnCheckpoint(const Job& job, const training::v1::CheckpointWritten& written) {
  const std::string& id = job.id();
  training::v1::Checkpoint checkpoint = written.checkpoint();
  if (!IsOwnCheckpoint(job, checkpoint, context_.options.checkpoints_dir)) {
    JobLog(job).Warn("its worker reports checkpoint {} of job {} at {}; refused",
                     QuoteValue(checkpoint.id()), QuoteValue(checkpoint.job_id()),
                     QuoteValue(checkpoint.path()));
    return;
  }
  checkpoint.set_owner(job.owner());
  checkpoint.set_write_seconds(job.latest_checkpoint().write_seconds());
  checkpoint.clear_reported_metrics();
  metric_reports_.Fill(job, checkpoint);
  // If the requested step already has a checkpoint, the worker reports that one again. After a
  // rewind, another file with the same ID takes its place.
  if (MessageDifferencer::Equals(job.latest_checkpoint(), checkpoint)) {
    context_.table.Announce([this, checkpoint] { context_.checkpoints.Answer(checkpoint); });
    return;
  }
  checkpoint.set_write_seconds(std::max(written.seconds(), 0.0));
  context_.table.PutCheckpoint(checkpoint);
  training::v1::JobEvent event;
  *event.mutable_checkpoint_written() = checkpoint;
  context_.table.AddEvent(id, std::move(event));
  for (const std::string& removed : written.removed_ids()) {
    if (IsStepOf(id, removed)) context_.table.RemoveCheckpoint(removed);
  }
  *context_.table.Edit(id)->mutable_latest_checkpoint() = checkpoint;
  context_.table.Count([this, log = JobLog(job), checkpoint] {
    attempts_.OnCheckpoint(log.job_id(),
                           context_.clock.Now() - absl::Seconds(checkpoint.write_seconds()));
    log.Info("checkpoint {} at step {}, {} bytes in {:.3f} s", checkpoint.path(), checkpoint.step(),
             checkpoint.size_bytes(), checkpoint.write_seconds());
    context_.metrics->CheckpointWritten(checkpoint.write_seconds(), checkpoint.size_bytes());
  });
  context_.table.Announce([this, checkpoint] { context_.checkpoints.Answer(checkpoint); });
}

void WorkerReports::OnPrecisionChanged(const Job& job,
                                       const training::v1::PrecisionChange& change) {
  Job* changed = context_.table.Edit(job.id());
  AddBounded(change, *changed->mutable_precision_changes());
  // The job went back from later steps. Drop their evaluation, and their checkpoints, from which a
  // restart must not continue. The worker removes the files.
  if (changed->evaluation().step() > change.resumed_step()) changed->clear_evaluation();
  if (change.resumed_step() < change.step()) {
    context_.checkpoints.ForgetAfter(job.id(), change.resumed_step());
    changed->mutable_progress()->set_step(change.resumed_step());
  }
  training::v1::JobEvent event;
  *event.mutable_precision_changed() = change;
  context_.table.AddEvent(job.id(), std::move(event));
  metric_reports_.ForgetAfter(*changed, change.resumed_step());
  training::v1::EffectivePrecision& precision = *changed->mutable_precision();
  precision.set_mode(change.to());
  precision.set_execution(change.execution());
  precision.set_reason(absl::StrCat(ShortEnumName(change.to()), ": ", change.trigger(), " at step ",
                                    change.step(), ": ", change.reason()));
  precision.add_refused(absl::StrCat(ShortEnumName(change.from()), ": left at step ", change.step(),
                                     ": ", change.reason()));
  context_.table.Count([this, log = JobLog(job), change, now = precision] {
    const bool falls = change.trigger() != "promotion";
    log.Warn(
        "{}precision changed from {} to {} at step {} ({}), training goes on from "
        "step {}: {}",
        falls ? absl::StrCat("Falling back to ", ShortEnumName(change.to()), ": ") : "",
        ShortEnumName(change.from()), ShortEnumName(change.to()), change.step(), change.trigger(),
        change.resumed_step(), change.reason());
    context_.metrics->PrecisionChanged(change.trigger());
    context_.stats.NotePrecision(log.job_id(), now);
  });
}

void WorkerReports::OnIncident(const Job& job, const training::v1::Incident& incident) {
  AddBounded(incident, *context_.table.Edit(job.id())->mutable_incidents());
  training::v1::JobEvent event;
  *event.mutable_incident() = incident;
  context_.table.AddEvent(job.id(), std::move(event));
  context_.table.Count([this, log = JobLog(job), incident] {
    log.Warn("incident ({}): {}", incident.rule(), incident.message());
    context_.metrics->IncidentSeen(incident.rule());
  });
}

void WorkerReports::OnEvaluated(const Job& job, const training::v1::Evaluation& evaluation) {
  Job* evaluated = context_.table.Edit(job.id());
  *evaluated->mutable_evaluation() = evaluation;
  NoteHistory(*evaluated);
  training::v1::JobEvent event;
  *event.mutable_evaluated() = evaluation;
  context_.table.AddEvent(job.id(), std::move(event));
  context_.table.Count(
      [this, id = job.id(), evaluation] { context_.stats.NoteHeldOut(id, evaluation.loss()); });
}

}  // namespace genesis
