// What workers report, and what the daemon makes of it: the worker side of JobManager. Every method
// here runs on the writer thread.
#include <cstring>
#include <memory>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "config/job_paths.h"
#include "config/precision.h"
#include "config/timestamp.h"
#include "config/workload.h"
#include "server/jobs/job_manager.h"
#include "server/jobs/job_state.h"
#include "spdlog/spdlog.h"

namespace genesis {
namespace {

using training::v1::AttachRequest;
using training::v1::Finished;
using training::v1::Job;

// How long a worker that has reported its job's end may take to exit.
constexpr absl::Duration kExitGrace = absl::Seconds(30);

// 0 for a job that no worker ever began.
double SecondsOnWorkers(const Job& job) {
  if (!job.has_start_time()) return 0;
  return SecondsBetween(job.start_time(), job.end_time());
}

std::string DescribeEnd(const WorkerExit& exit) {
  if (exit.exit.signal == 0) return absl::StrCat("the worker exited with ", exit.exit.exit_code);
  return absl::StrCat("the worker was ended by signal ", exit.exit.signal, " (",
                      strsignal(exit.exit.signal), ")");
}

}  // namespace

void JobManager::OnCapacity() {
  writer_.Post({[this] { StartQueued(); }, nullptr});
}

void JobManager::OnWorkerEvent(const AttachRequest& event) {
  writer_.Post({[this, event] { Report(event); }, nullptr});
}

void JobManager::OnWorkerGone(const WorkerExit& exit) {
  writer_.Post({[this, exit] { OnLost(exit); }, nullptr});
}

bool JobManager::IsCurrent(const std::string& job_id, int64_t claim) const {
  const Job* job = table_.Find(job_id);
  return job != nullptr && job->claim() == claim && IsOnWorker(job->state());
}

// Assigning is a change of its own, after the commit of the one that made it possible: a worker is
// reserved only for a job that is durably queued.
void JobManager::StartQueued() {
  table_.Announce([this] {
    const WorkerPool::Counts workers = pool_->counts();
    metrics_->SetWorkers(workers.busy, workers.warm, pool_->slots());
    metrics_->SetQueueDepth(table_.CountIn(training::v1::JOB_STATE_QUEUED));
    if (draining_ || table_.CountIn(training::v1::JOB_STATE_QUEUED) == 0) return;
    auto leased = std::make_shared<std::string>();
    writer_.Post({[this, leased] { *leased = AssignNext(); },
                  [this, leased](const absl::Status&) { pool_->Release(*leased); }});
  });
}

std::string JobManager::AssignNext() {
  const std::vector<std::string> queued = table_.IdsIn(training::v1::JOB_STATE_QUEUED);
  if (queued.empty() || draining_) return "";
  const std::optional<WorkerPool::Lease> lease = pool_->Reserve();
  if (!lease) return "";
  const std::string& id = queued.front();
  Move(id, training::v1::JOB_STATE_STARTING, absl::StrCat("given to worker ", lease->worker_id));
  Job* job = table_.Edit(id);
  job->set_claim(job->claim() + 1);
  if (!job->has_start_time()) *job->mutable_start_time() = TimestampNow();
  *job->mutable_precision() = ComputeEffectivePrecision(job->spec().precision().mode(), Gate(),
                                                        options_.cpu_fallback, lease->device);
  const std::vector<training::v1::PrecisionMode> allowed =
      AllowedModes(job->spec().precision(), Gate(), options_.cpu_fallback, lease->device);

  training::v1::StartJob start;
  start.set_job_id(id);
  start.set_claim(job->claim());
  *start.mutable_spec() = job->spec();
  for (const JobPath& path : PathsOf(*start.mutable_spec())) {
    *path.path = absl::StrCat(options_.datasets_root, "/", *path.path);
  }
  *start.mutable_precision() = job->precision();
  start.mutable_allowed_modes()->Assign(allowed.begin(), allowed.end());
  *start.mutable_baseline() = table_.BaselineOf(WorkloadKey(job->spec()));
  start.set_checkpoint_dir(options_.checkpoints_dir);
  const std::vector<training::v1::Checkpoint> checkpoints = table_.CheckpointsOf(id);
  for (auto it = checkpoints.rbegin(); it != checkpoints.rend(); ++it) {
    start.add_resume_from(it->path());
  }
  table_.Announce([this, start, worker_id = lease->worker_id] {
    spdlog::info("job {}: {}", start.job_id(), start.precision().reason());
    if (!Gate().enabled) spdlog::info("FP16 training disabled - using FP32");
    metrics_->SetEffectivePrecision(start.precision());
    pool_->Begin(worker_id, start);
  });
  StartQueued();
  return lease->worker_id;
}

void JobManager::Report(const AttachRequest& event) {
  if (!IsCurrent(event.job_id(), event.claim())) {
    spdlog::warn("a report on job {} carries claim {}, which is not its present one; refused",
                 event.job_id(), event.claim());
    return;
  }
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
      return OnFinished(job, event.finished());
    case AttachRequest::kLogLine:
      spdlog::info("job {}: {}", job.id(), event.log_line().text());
      return;
    case AttachRequest::kHello:
    case AttachRequest::EVENT_NOT_SET:
      return;
  }
}

void JobManager::OnStarted(const Job& job, const training::v1::Started& started) {
  if (job.state() != training::v1::JOB_STATE_STARTING) return;
  const std::string& id = job.id();
  Move(id, training::v1::JOB_STATE_RUNNING,
       started.resumed_step() == 0
           ? "training"
           : absl::StrCat("training, continued from step ", started.resumed_step()));
  Job* running = table_.Edit(id);
  running->mutable_progress()->set_total_steps(started.total_steps());
  running->mutable_progress()->set_step(started.resumed_step());
  if (!started.has_precision()) return;
  *running->mutable_precision() = started.precision();
  table_.Announce(
      [this, precision = started.precision()] { metrics_->SetEffectivePrecision(precision); });
}

void JobManager::OnSteps(const Job& job, const training::v1::Steps& steps) {
  // Each report is of one mode; workers before it was reported named none.
  const training::v1::PrecisionMode mode =
      steps.progress().mode() == training::v1::PRECISION_MODE_UNSPECIFIED ? job.precision().mode()
                                                                          : steps.progress().mode();
  *table_.EditVolatile(job.id())->mutable_progress() = steps.progress();
  table_.Count([this, steps, mode] {
    counters_.steps += steps.new_steps();
    counters_.samples += steps.new_samples();
    counters_.reduced_precision_steps += steps.new_reduced_precision_steps();
    counters_.skipped_steps += steps.new_skipped_steps();
    if (IsReducedPrecision(mode)) counters_.current_scale = steps.progress().loss_scale();
    metrics_->Steps(steps, mode);
  });
}

void JobManager::OnCheckpoint(const Job& job, const training::v1::CheckpointWritten& written) {
  const std::string& id = job.id();
  const training::v1::Checkpoint& checkpoint = written.checkpoint();
  // Asked for a checkpoint at a step that has one, the worker reports that one again.
  if (job.latest_checkpoint().id() == checkpoint.id()) {
    table_.Announce([this, id, checkpoint] { AnswerCheckpointWaiters(id, checkpoint); });
    return;
  }
  table_.PutCheckpoint(checkpoint);
  for (const std::string& removed : written.removed_ids()) table_.RemoveCheckpoint(removed);
  *table_.Edit(id)->mutable_latest_checkpoint() = checkpoint;
  table_.Count([this, id, written] {
    spdlog::info("job {}: checkpoint {} at step {}, {} bytes in {:.3f} s", id,
                 written.checkpoint().path(), written.checkpoint().step(),
                 written.checkpoint().size_bytes(), written.seconds());
    metrics_->CheckpointWritten(written.seconds(), written.checkpoint().size_bytes());
  });
  table_.Announce([this, id, checkpoint] { AnswerCheckpointWaiters(id, checkpoint); });
}

void JobManager::OnFinished(const Job& job, const Finished& finished) {
  const std::string& id = job.id();
  if (finished.has_progress()) *table_.Edit(id)->mutable_progress() = finished.progress();
  switch (finished.outcome()) {
    case Finished::OUTCOME_COMPLETED:
      // A worker sends Started before it can complete; a lost one must not lose the result.
      if (job.state() == training::v1::JOB_STATE_STARTING) {
        Move(id, training::v1::JOB_STATE_RUNNING, "training");
      }
      if (finished.has_held_out()) *table_.Edit(id)->mutable_held_out() = finished.held_out();
      if (finished.curve().steps_size() > 0) {
        table_.PutBaseline(WorkloadKey(job.spec()), id, finished.curve());
      }
      End(id, training::v1::JOB_STATE_SUCCEEDED,
          finished.early_end().empty()
              ? "training complete"
              : absl::StrCat("training complete, ended early: ", finished.early_end()));
      break;
    case Finished::OUTCOME_STOPPED:
      OnStopped(*table_.Find(id));
      break;
    default:
      *table_.Edit(id)->mutable_failure() = finished.failure();
      if (finished.failure().cause() == training::v1::FAILURE_CAUSE_CHECKPOINT) {
        table_.Count([this] { metrics_->CheckpointFailed(); });
      }
      End(id, training::v1::JOB_STATE_FAILED, finished.failure().message());
  }
  table_.Announce([this, id] { pool_->ExpectExit(id, kExitGrace); });
}

void JobManager::OnStopped(const Job& job) {
  const std::string& id = job.id();
  const std::string at = absl::StrCat(" at step ", job.progress().step());
  if (job.state() == training::v1::JOB_STATE_CANCELLING) {
    End(id, training::v1::JOB_STATE_CANCELLED, absl::StrCat("cancelled by a user", at));
  } else if (job.state() == training::v1::JOB_STATE_PAUSING) {
    Move(id, training::v1::JOB_STATE_PAUSED, absl::StrCat("paused by a user", at));
  } else {
    Requeue(id, absl::StrCat("stopped", at, draining_ ? " because the daemon drains" : ""));
  }
}

void JobManager::OnLost(const WorkerExit& exit) {
  StartQueued();
  if (!IsCurrent(exit.job_id, exit.claim)) return;
  const std::string& id = exit.job_id;
  const Job& job = *table_.Find(id);
  table_.Count([this] { metrics_->WorkerRestarted("crash"); });
  if (job.state() == training::v1::JOB_STATE_CANCELLING) {
    End(id, training::v1::JOB_STATE_CANCELLED, "cancelled by a user");
    return;
  }
  if (job.state() == training::v1::JOB_STATE_PAUSING) {
    Move(id, training::v1::JOB_STATE_PAUSED, "paused; its worker is gone");
    return;
  }
  if (draining_) {
    Requeue(id, "its worker ended because the daemon drains");
    return;
  }
  const std::string what = DescribeEnd(exit);
  if (job.restarts() < job.spec().max_restarts()) {
    Job* restarted = table_.Edit(id);
    restarted->set_restarts(job.restarts() + 1);
    spdlog::warn("job {}: {}; restart {} of {}", id, what, restarted->restarts(),
                 job.spec().max_restarts());
    Requeue(id, absl::StrCat(what, "; restart ", restarted->restarts(), " of ",
                             job.spec().max_restarts()));
    return;
  }
  training::v1::Failure* failure = table_.Edit(id)->mutable_failure();
  failure->set_cause(exit.exit.signal != 0 ? training::v1::FAILURE_CAUSE_SIGNAL
                                           : training::v1::FAILURE_CAUSE_WORKER_EXIT);
  failure->set_message(
      absl::StrCat(what, " and all ", job.spec().max_restarts(), " restarts are used up"));
  failure->set_exit_code(exit.exit.exit_code);
  failure->set_signal(exit.exit.signal);
  for (const std::string& line : exit.log_tail) failure->add_log_tail(line);
  End(id, training::v1::JOB_STATE_FAILED, failure->message());
}

void JobManager::Requeue(const std::string& job_id, const std::string& reason) {
  Move(job_id, training::v1::JOB_STATE_RECOVERING, reason);
  Move(job_id, training::v1::JOB_STATE_QUEUED, reason);
  AnswerCheckpointWaiters(job_id, absl::AbortedError(absl::StrCat(
                                      "no checkpoint was taken: ", reason, "; the job is queued")));
  StartQueued();
}

void JobManager::End(const std::string& job_id, JobState state, const std::string& reason) {
  Move(job_id, state, reason);
  Job* job = table_.Edit(job_id);
  *job->mutable_end_time() = TimestampNow();
  WatchFailures(*job);
  table_.Count([this, ended = *job] {
    spdlog::info("job {} {}: {}", ended.id(), JobStateName(ended.state()), ended.state_reason());
    metrics_->JobFinished(ended.state(), ended.failure().cause(), SecondsOnWorkers(ended));
  });
  table_.Announce([this, ended = *job] {
    AnswerCheckpointWaiters(
        ended.id(), absl::FailedPreconditionError(absl::StrCat(
                        "job \"", ended.id(), "\" has ended as ", JobStateName(ended.state()))));
  });
}

void JobManager::Move(const std::string& job_id, JobState to, const std::string& reason) {
  const JobState from = table_.Find(job_id)->state();
  table_.Move(job_id, to, reason);
  table_.Count([this, from, to] { metrics_->JobMoved(from, to); });
}

void JobManager::AnswerCheckpointWaiters(const std::string& job_id,
                                         const absl::StatusOr<training::v1::Checkpoint>& result) {
  auto waiters = checkpoint_waiters_.extract(job_id);
  if (waiters.empty()) return;
  for (const auto& answer : waiters.mapped()) answer(result);
}

}  // namespace genesis
