// How attempts at jobs end, and what comes after: a part of JobManager. Every method here runs on
// the writer thread.
#include <algorithm>
#include <csignal>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "base/steady_time.h"
#include "base/timestamp.h"
#include "config/job/workload.h"
#include "server/jobs/history_row.h"
#include "server/jobs/job_errors.h"
#include "server/jobs/job_manager.h"
#include "server/jobs/job_state.h"
#include "spdlog/spdlog.h"

namespace genesis {
namespace {

using training::v1::Failure;
using training::v1::Finished;
using training::v1::Job;

// How long a worker that has reported its job's end may take to exit.
constexpr absl::Duration kExitGrace = absl::Seconds(30);
// Workloads whose use of memory is remembered.
constexpr size_t kMaxPeaks = 1000;

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

void JobManager::OnFinished(const Job& job, const Finished& finished) {
  const std::string id = job.id();
  Job* ended = table_.Edit(id);
  if (finished.has_progress()) *ended->mutable_progress() = finished.progress();
  NotePeak(*ended, finished.peak_memory_bytes(), finished.peak_device_bytes());
  switch (finished.outcome()) {
    case Finished::OUTCOME_COMPLETED:
      // A worker sends Started before it can complete; a lost one must not lose the result.
      if (job.state() == training::v1::JOB_STATE_STARTING) {
        Move(id, training::v1::JOB_STATE_RUNNING, "training");
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
    pool_->ExpectExit(id, kExitGrace, "it reported the end of its job and did not exit");
  });
}

void JobManager::OnFailed(const Job& job, const Failure& failure) {
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

void JobManager::OnStopped(const Job& job) {
  const std::string id = job.id();
  const std::string at = absl::StrCat(" at step ", job.progress().step());
  const auto found = stops_.find(id);
  if (job.state() == training::v1::JOB_STATE_CANCELLING) {
    End(id, training::v1::JOB_STATE_CANCELLED, absl::StrCat("cancelled by a user", at));
  } else if (job.state() == training::v1::JOB_STATE_PAUSING) {
    Move(id, training::v1::JOB_STATE_PAUSED, absl::StrCat("paused by a user", at));
    LeaveWorker(id);
    StartQueued();
  } else if (found == stops_.end()) {
    Requeue(id, absl::StrCat("stopped", at, draining_ ? " because the daemon drains" : ""));
  } else {
    EndStopped(id, found->second, at);
  }
}

void JobManager::EndStopped(const std::string& job_id, const StopRequest& request,
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

void JobManager::OnLost(const WorkerExit& exit) {
  StartQueued();
  if (!IsCurrent(exit.job_id, exit.claim)) return;
  const std::string& id = exit.job_id;
  const Job& job = *table_.Find(id);
  NotePeak(*table_.Edit(id), exit.exit.peak_memory_bytes, 0);
  const auto request = stops_.find(id);
  if (job.state() == training::v1::JOB_STATE_CANCELLING) {
    End(id, training::v1::JOB_STATE_CANCELLED, "cancelled by a user");
  } else if (job.state() == training::v1::JOB_STATE_PAUSING) {
    Move(id, training::v1::JOB_STATE_PAUSED, "paused; its worker is gone");
    LeaveWorker(id);
  } else if (draining_) {
    Requeue(id, "its worker ended because the daemon drains");
  } else if (request != stops_.end()) {
    EndStopped(id, request->second, "");
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

void JobManager::NotePeak(Job& job, int64_t host_bytes, int64_t device_bytes) {
  job.set_peak_memory_bytes(std::max(job.peak_memory_bytes(), host_bytes));
  job.set_peak_device_bytes(std::max(job.peak_device_bytes(), device_bytes));
  const int64_t peak =
      job.peak_device_bytes() > 0 ? job.peak_device_bytes() : job.peak_memory_bytes();
  if (peak_memory_.size() >= kMaxPeaks) peak_memory_.erase(peak_memory_.begin());
  int64_t& known = peak_memory_[WorkloadKey(job.spec())];
  known = std::max(known, peak);
}

void JobManager::RestartOrFail(const std::string& job_id, Failure failure) {
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
  if (backoff > absl::ZeroDuration()) {
    *job->mutable_retry_time() = ToTimestamp(absl::Now() + backoff);
    table_.Count([this, job_id, retry = SteadyNow() + backoff] { retries_[job_id] = retry; });
  }
  const std::string reason = absl::StrCat(
      failure.message(), "; restart ", job->restarts(), " of ", most,
      backoff > absl::ZeroDuration() ? absl::StrCat(", after ", absl::FormatDuration(backoff))
                                     : "");
  spdlog::warn("job {}: {}", job_id, reason);
  Requeue(job_id, reason);
}

void JobManager::Requeue(const std::string& job_id, const std::string& reason) {
  Move(job_id, training::v1::JOB_STATE_RECOVERING, reason);
  Move(job_id, training::v1::JOB_STATE_QUEUED, reason);
  LeaveWorker(job_id);
  StartQueued();
}

void JobManager::Fail(const std::string& job_id, Failure failure) {
  const std::string message = failure.message();
  *table_.Edit(job_id)->mutable_failure() = std::move(failure);
  End(job_id, training::v1::JOB_STATE_FAILED, message);
}

void JobManager::End(const std::string& job_id, JobState state, const std::string& reason) {
  Move(job_id, state, reason);
  Job* job = table_.Edit(job_id);
  *job->mutable_end_time() = TimestampNow();
  LeaveWorker(job_id);
  WatchFailures(*job);
  if (state == training::v1::JOB_STATE_SUCCEEDED) {
    table_.Count([this, seconds = job->worker_seconds()] { counters_.NoteJob(seconds); });
  }
  table_.Count([this, ended = *job] {
    fruitless_restarts_.erase(ended.id());
    accepted_.erase(ended.id());
    retries_.erase(ended.id());
    spdlog::info("job {} {}: {}", ended.id(), JobStateName(ended.state()), ended.state_reason());
    metrics_->JobFinished(ended.state(), ended.failure().cause(), SecondsOnWorkers(ended));
    options_.on_history(MakeHistoryRow(ended, gate().enabled, stats_.DeviceMemoryOf(ended.id()),
                                       FromTimestamp(ended.end_time())));
  });
}

void JobManager::LeaveWorker(const std::string& job_id) {
  Job* job = table_.Edit(job_id);
  job->clear_worker();
  table_.Announce(
      [this, job_id, status = NoCheckpoint(*job)] { AnswerCheckpointWaiters(job_id, status); });
  const auto start = attempt_starts_.find(job_id);
  if (start == attempt_starts_.end()) return;
  const double seconds = absl::ToDoubleSeconds(SteadyNow() - start->second);
  job->set_worker_seconds(job->worker_seconds() + seconds);
  table_.Count([this, job_id, owner = job->owner(), seconds] {
    usage_.Add(owner, seconds, SteadyNow());
    attempt_starts_.erase(job_id);
    unprotected_.End(job_id);
    stops_.erase(job_id);
    metrics_->JobLeaves(job_id);
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
  for (const auto& callback : waiters.mapped()) callback(result);
}

}  // namespace genesis
