#include "server/jobs/job_attempts.h"

#include <algorithm>
#include <csignal>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/timestamp.h"
#include "config/job/workload.h"
#include "server/jobs/history_row.h"
#include "server/jobs/job_errors.h"
#include "server/jobs/job_state.h"
#include "spdlog/spdlog.h"

namespace genesis {
namespace {

using training::v1::Failure;
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
  if (!exit.forced.empty()) return absl::StrCat("the worker was ended by force: ", exit.forced);
  if (!exit.exit.known) return "the worker ended while the daemon was away";
  if (exit.exit.signal == 0) return absl::StrCat("the worker exited with ", exit.exit.exit_code);
  std::string text = absl::StrCat("the worker was ended by signal ", exit.exit.signal, " (",
                                  strsignal(exit.exit.signal), ")");
  // Nobody of ours sent it.
  if (exit.exit.signal == SIGKILL && exit.exit.peak_memory_bytes > 0) {
    absl::StrAppend(&text, ", perhaps for want of memory: it had used up to ",
                    exit.exit.peak_memory_bytes >> 20, " MiB (see dmesg)");
  }
  return text;
}

// For whoever waits for a checkpoint that the job's worker will not take any more.
absl::Status NoCheckpoint(const Job& job) {
  if (IsFinal(job.state())) {
    return absl::FailedPreconditionError(
        absl::StrCat("job \"", job.id(), "\" has ended as ", JobStateName(job.state())));
  }
  return absl::AbortedError(absl::StrCat("no checkpoint was taken: ", job.state_reason(),
                                         "; the job is ", JobStateName(job.state())));
}

}  // namespace

void JobAttempts::Recover(const Job& job) {
  const std::string id = job.id();
  if (job.has_worker() && workers_->Adopt(job.worker(), id, job.claim(), job.worker_sequence(),
                                          dispatcher_.MemoryOf(job.spec()))) {
    spdlog::info("job {}: its worker {} lives and keeps it", id, job.worker().worker_id());
    dispatcher_.OnAdopted(id);
    unprotected_.Adopt(job);
    return;
  }
  if (job.state() == training::v1::JOB_STATE_CANCELLING) {
    End(id, training::v1::JOB_STATE_CANCELLED, "cancelled; the daemon was restarted meanwhile");
  } else if (job.state() == training::v1::JOB_STATE_PAUSING) {
    ledger_.Move(id, training::v1::JOB_STATE_PAUSED, "paused; the daemon was restarted meanwhile");
    LeaveWorker(id);
  } else {
    metrics_->WorkerRestarted("daemon_restart");
    Requeue(id, "the daemon was restarted while the job ran");
  }
}

bool JobAttempts::IsCurrent(const std::string& job_id, int64_t claim) const {
  const Job* job = table_.Find(job_id);
  return job != nullptr && job->claim() == claim && IsOnWorker(job->state());
}

void JobAttempts::OnFinished(const Job& job, const Finished& finished) {
  const std::string id = job.id();
  Job* ended = table_.Edit(id);
  if (finished.has_progress()) *ended->mutable_progress() = finished.progress();
  dispatcher_.NotePeak(*ended, finished.peak_memory_bytes(), finished.peak_device_bytes());
  switch (finished.outcome()) {
    case Finished::OUTCOME_COMPLETED:
      // A worker sends Started before it can complete; a lost one must not lose the result.
      if (job.state() == training::v1::JOB_STATE_STARTING) {
        ledger_.Move(id, training::v1::JOB_STATE_RUNNING, "training");
      }
      if (finished.has_held_out()) *ended->mutable_held_out() = finished.held_out();
      if (finished.curve().steps_size() > 0) {
        training::v1::LossCurve curve = finished.curve();
        curve.set_peak_device_bytes(finished.peak_device_bytes());
        table_.PutBaseline(WorkloadKey(job.spec()), id, curve);
      }
      End(id, training::v1::JOB_STATE_SUCCEEDED,
          finished.early_end().empty()
              ? "training complete"
              : absl::StrCat("training complete, ended early: ", finished.early_end()));
      break;
    case Finished::OUTCOME_STOPPED:
      OnStopped(job);
      break;
    default:
      OnFailed(job, finished.failure());
  }
  table_.Announce([this, id] {
    workers_->ExpectExit(id, kExitGrace, "it reported the end of its job and did not exit");
  });
}

void JobAttempts::OnFailed(const Job& job, const Failure& failure) {
  const std::string id = job.id();
  if (failure.cause() == training::v1::FAILURE_CAUSE_CHECKPOINT) {
    table_.Count([this] { metrics_->CheckpointFailed(); });
  }
  const bool runs = IsTraining(job.state());
  if (runs && failure.cause() == training::v1::FAILURE_CAUSE_OUT_OF_MEMORY &&
      job.spec().scheduling().shrink_on_out_of_memory() && job.batch_halvings() == 0) {
    table_.Edit(id)->set_batch_halvings(1);
    Requeue(id, absl::StrCat("out of memory; tried again with training.batch_size ",
                             job.spec().training().batch_size() / 2,
                             " and twice the accumulation: ", failure.message()));
  } else if (runs && failure.cause() == training::v1::FAILURE_CAUSE_DEVICE) {
    // A device error poisons the process, not the job.
    table_.Count([this] { metrics_->WorkerRestarted("device_error"); });
    RestartOrFail(id, failure);
  } else {
    Fail(id, failure);
  }
}

void JobAttempts::OnStopped(const Job& job) {
  const std::string id = job.id();
  const std::string at = absl::StrCat(" at step ", job.progress().step());
  const StopRequest* const request = stops_.Find(id);
  if (job.state() == training::v1::JOB_STATE_CANCELLING) {
    End(id, training::v1::JOB_STATE_CANCELLED, absl::StrCat("cancelled by a user", at));
  } else if (job.state() == training::v1::JOB_STATE_PAUSING) {
    ledger_.Move(id, training::v1::JOB_STATE_PAUSED, absl::StrCat("paused by a user", at));
    LeaveWorker(id);
    dispatcher_.StartQueued();
  } else if (request == nullptr) {
    Requeue(id, absl::StrCat("stopped", at,
                             dispatcher_.draining() ? " because the daemon drains" : ""));
  } else {
    EndStopped(id, *request, at);
  }
}

void JobAttempts::EndStopped(const std::string& job_id, const StopRequest& request,
                             const std::string& at) {
  if (request.cause == StopCause::kDeadline) {
    Fail(job_id, MakeFailure(training::v1::FAILURE_CAUSE_DEADLINE,
                             absl::StrCat(request.reason, "; stopped", at)));
  } else if (request.cause == StopCause::kHung) {
    table_.Count([this] { metrics_->WorkerRestarted("hang"); });
    RestartOrFail(job_id, MakeFailure(training::v1::FAILURE_CAUSE_HANG, request.reason));
  } else {
    Requeue(job_id, absl::StrCat(request.reason, at));
  }
}

void JobAttempts::OnLost(const WorkerExit& exit) {
  dispatcher_.StartQueued();
  if (!IsCurrent(exit.job_id, exit.claim)) return;
  const std::string& id = exit.job_id;
  const Job& job = *table_.Find(id);
  dispatcher_.NotePeak(*table_.Edit(id), exit.exit.peak_memory_bytes, 0);
  const StopRequest* const request = stops_.Find(id);
  if (job.state() == training::v1::JOB_STATE_CANCELLING) {
    End(id, training::v1::JOB_STATE_CANCELLED, "cancelled by a user");
  } else if (job.state() == training::v1::JOB_STATE_PAUSING) {
    ledger_.Move(id, training::v1::JOB_STATE_PAUSED, "paused; its worker is gone");
    LeaveWorker(id);
  } else if (dispatcher_.draining()) {
    Requeue(id, "its worker ended because the daemon drains");
  } else if (request != nullptr) {
    EndStopped(id, *request, "");
  } else if (exit.never_back) {
    // Lost with the daemon, or before it had the job: no fault of the job's.
    table_.Count([this] { metrics_->WorkerRestarted("daemon_restart"); });
    Requeue(id, "its worker did not outlive a restart of the daemon");
  } else {
    table_.Count([this] { metrics_->WorkerRestarted("crash"); });
    Failure failure = MakeFailure(exit.exit.signal != 0 ? training::v1::FAILURE_CAUSE_SIGNAL
                                                        : training::v1::FAILURE_CAUSE_WORKER_EXIT,
                                  DescribeEnd(exit));
    failure.set_exit_code(exit.exit.exit_code);
    failure.set_signal(exit.exit.signal);
    for (const std::string& line : exit.log_tail) failure.add_log_tail(line);
    RestartOrFail(id, std::move(failure));
  }
}

void JobAttempts::RestartOrFail(const std::string& job_id, Failure failure) {
  Job* job = table_.Edit(job_id);
  const int most = job->spec().max_restarts();
  if (job->restarts() >= most) {
    failure.set_message(absl::StrCat(failure.message(), "; all ", most, " restarts are used up"));
    return Fail(job_id, std::move(failure));
  }
  job->set_restarts(job->restarts() + 1);
  // Whoever gets on is not held up.
  const int fruitless = fruitless_restarts_[job_id] + 1;
  table_.Count([this, job_id, fruitless] { fruitless_restarts_[job_id] = fruitless; });
  const absl::Duration backoff = RestartBackoff(fruitless);
  if (backoff > absl::ZeroDuration()) dispatcher_.RetryAfter(job_id, backoff);
  const std::string reason = absl::StrCat(
      failure.message(), "; restart ", job->restarts(), " of ", most,
      backoff > absl::ZeroDuration() ? absl::StrCat(", after ", absl::FormatDuration(backoff))
                                     : "");
  spdlog::warn("job {}: {}", job_id, reason);
  Requeue(job_id, reason);
}

void JobAttempts::Requeue(const std::string& job_id, const std::string& reason) {
  ledger_.Move(job_id, training::v1::JOB_STATE_RECOVERING, reason);
  ledger_.Move(job_id, training::v1::JOB_STATE_QUEUED, reason);
  LeaveWorker(job_id);
  dispatcher_.StartQueued();
}

void JobAttempts::Fail(const std::string& job_id, Failure failure) {
  const std::string message = failure.message();
  *table_.Edit(job_id)->mutable_failure() = std::move(failure);
  End(job_id, training::v1::JOB_STATE_FAILED, message);
}

void JobAttempts::End(const std::string& job_id, JobState state, const std::string& reason) {
  ledger_.Move(job_id, state, reason);
  Job* job = table_.Edit(job_id);
  *job->mutable_end_time() = ToTimestamp(clock_.Now());
  LeaveWorker(job_id);
  precision_.OnJobEnded(*job);
  if (state == training::v1::JOB_STATE_SUCCEEDED) {
    table_.Count(
        [this, seconds = job->worker_seconds()] { statistics_.counters.NoteJob(seconds); });
  }
  table_.Count([this, ended = *job] {
    fruitless_restarts_.erase(ended.id());
    dispatcher_.OnEnded(ended.id());
    spdlog::info("job {} {}: {}", ended.id(), JobStateName(ended.state()), ended.state_reason());
    metrics_->JobFinished(ended.state(), ended.failure().cause(), SecondsOnWorkers(ended));
    options_.on_history(MakeHistoryRow(ended, precision_.gate().enabled,
                                       statistics_.training.DeviceMemoryOf(ended.id()),
                                       FromTimestamp(ended.end_time())));
  });
}

void JobAttempts::LeaveWorker(const std::string& job_id) {
  Job* job = table_.Edit(job_id);
  job->clear_worker();
  table_.Announce(
      [this, job_id, status = NoCheckpoint(*job)] { checkpoints_.Answer(job_id, status); });
  if (!dispatcher_.OnLeftWorker(*job)) return;
  table_.Count([this, job_id] {
    unprotected_.End(job_id);
    stops_.Forget(job_id);
    metrics_->JobLeaves(job_id);
  });
}

void JobAttempts::EndOverdue() {
  const absl::Time now = clock_.Steady();
  for (const std::string& id : table_.Ids()) {
    const Job& job = *table_.Find(id);
    if (now < dispatcher_.DeadlineOf(job)) continue;
    const std::string reason =
        absl::StrCat("scheduling.deadline_seconds ", job.spec().scheduling().deadline_seconds(),
                     " passed since the job was accepted");
    if (IsTraining(job.state())) {
      if (stops_.Find(id) == nullptr) stops_.Stop(id, {StopCause::kDeadline, reason});
    } else if (!IsOnWorker(job.state())) {
      Fail(id, MakeFailure(training::v1::FAILURE_CAUSE_DEADLINE,
                           absl::StrCat(reason, "; it was ", JobStateName(job.state()))));
    }
  }
}

void JobAttempts::OnCheckpoint(const std::string& job_id, absl::Time snapshot) {
  fruitless_restarts_.erase(job_id);
  unprotected_.Protect(job_id, snapshot);
}

}  // namespace genesis
