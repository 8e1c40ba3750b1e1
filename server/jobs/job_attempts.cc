#include "server/jobs/job_attempts.h"

#include <algorithm>
#include <csignal>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/text/enum_names.h"
#include "base/timestamp.h"
#include "config/job/workload.h"
#include "server/base/job_log.h"
#include "server/jobs/gang.h"
#include "server/jobs/job_errors.h"
#include "server/ledger/history_row.h"
#include "server/ledger/job_state.h"
#include "spdlog/spdlog.h"

namespace genesis {
namespace {

using training::v1::Failure;
using training::v1::Finished;
using training::v1::Job;

// Time in which a worker must exit after it has reported the end of its job.
constexpr absl::Duration kExitGrace = absl::Seconds(30);

// Returns the time from the first start to the end; 0 for a job that was never on a worker.
double SecondsOnWorkers(const Job& job) {
  if (!job.has_start_time()) return 0;
  return SecondsBetween(job.start_time(), job.end_time());
}

std::string DescribeEnd(const WorkerExit& exit) {
  if (!exit.forced.empty()) return absl::StrCat("the worker was ended by force: ", exit.forced);
  // Only a parent gets the exit status.
  if (!exit.exit.known)
    return "the worker ended; how is unknown, because an earlier daemon started it";
  if (exit.exit.signal == 0) return absl::StrCat("the worker exited with ", exit.exit.exit_code);
  std::string text = absl::StrCat("the worker was ended by signal ", exit.exit.signal, " (",
                                  strsignal(exit.exit.signal), ")");
  // The daemon did not send this SIGKILL, so the kernel may have, for lack of memory.
  if (exit.exit.signal == SIGKILL && exit.exit.peak_memory_bytes > 0) {
    absl::StrAppend(&text, ", perhaps for want of memory: it had used up to ",
                    exit.exit.peak_memory_bytes >> 20, " MiB (see dmesg)");
  }
  return text;
}

// Returns the error for callers waiting for a checkpoint that the job's worker will not take.
absl::Status NoCheckpoint(const Job& job) {
  if (IsFinal(job.state())) {
    return absl::FailedPreconditionError(
        absl::StrCat("job \"", job.id(), "\" has ended as ", ShortEnumName(job.state())));
  }
  return absl::AbortedError(absl::StrCat("no checkpoint was taken: ", job.state_reason(),
                                         "; the job is ", ShortEnumName(job.state())));
}

}  // namespace

void JobAttempts::Recover(const Job& job) {
  const std::string id = job.id();
  if (IsGang(job) && AdoptGang(job)) return;
  if (!IsGang(job) && job.has_worker() &&
      context_.workers->Adopt(job.worker(), id, /*rank=*/0, job.claim(), job.worker_sequence(),
                              context_.dispatcher.MemoryOf(job.spec()))) {
    JobLog(job).Info("adopted its running worker {}", job.worker().worker_id());
    context_.dispatcher.OnAdopted(id);
    unprotected_.Adopt(job);
    return;
  }
  if (job.state() == training::v1::JOB_STATE_CANCELLING) {
    End(id, training::v1::JOB_STATE_CANCELLED, "cancelled; the daemon was restarted meanwhile");
  } else if (job.state() == training::v1::JOB_STATE_PAUSING) {
    context_.ledger.Move(id, training::v1::JOB_STATE_PAUSED,
                         "paused; the daemon was restarted meanwhile");
    LeaveWorker(id);
  } else {
    context_.metrics->WorkerRestarted("daemon_restart");
    Requeue(id, "the daemon was restarted while the job ran");
  }
}

bool JobAttempts::AdoptGang(const Job& job) {
  const std::string id = job.id();
  const int64_t memory = context_.dispatcher.MemoryOf(job.spec());
  std::string missing;
  int adopted = 0;
  for (training::v1::RankStatus& status : *context_.table.Edit(id)->mutable_ranks()) {
    const int rank = status.rank();
    const int64_t acknowledged = rank == 0 ? job.worker_sequence() : 0;
    if (!status.ended() &&
        context_.workers->Adopt(status.worker(), id, rank, job.claim(), acknowledged, memory)) {
      ++adopted;
      continue;
    }
    status.set_ended(true);
    if (missing.empty()) missing = DescribeRank(job, rank);
  }
  if (adopted == 0) return false;
  JobLog(job).Info("{} of its {} workers live", adopted, job.ranks_size());
  context_.dispatcher.OnAdopted(id);
  unprotected_.Adopt(job);
  if (missing.empty()) return true;
  RankEnd end;
  end.exit.job_id = id;
  end.exit.claim = job.claim();
  end.exit.never_back = true;
  end.why = absl::StrCat(missing, " did not outlive a restart of the daemon");
  EndRank(id, end);
  return true;
}

bool JobAttempts::IsCurrent(const std::string& job_id, int64_t claim) const {
  const Job* job = context_.table.Find(job_id);
  return job != nullptr && job->claim() == claim && IsOnWorker(job->state());
}

void JobAttempts::OnFinished(const Job& job, int rank, const Finished& finished) {
  if (!IsGang(job)) return EndAttempt(job, finished);
  if (rank >= job.ranks_size() || job.ranks(rank).ended()) return;
  const std::string id = job.id();
  Job* const edited = context_.table.Edit(id);
  edited->mutable_ranks(rank)->set_ended(true);
  context_.dispatcher.NotePeak(*edited, finished.peak_memory_bytes(), finished.peak_device_bytes());
  if (finished.outcome() == Finished::OUTCOME_FAILED) {
    RankEnd end{.rank = rank, .finished = finished, .exit = {}, .why = {}, .follows = false};
    end.follows = finished.failure().cause() == training::v1::FAILURE_CAUSE_WORKER_EXIT;
    end.why = absl::StrCat(DescribeRank(job, rank), ": ", finished.failure().message());
    *end.finished->mutable_failure()->mutable_message() = end.why;
    EndRank(id, end);
  } else if (rank == 0) {
    // The other ranks wait for rank 0's checkpoint before they end, and do nothing afterwards.
    EndAttempt(job, finished);
  } else {
    EndGang(id);
  }
}

void JobAttempts::EndRank(const std::string& job_id, const RankEnd& end) {
  gang_endings_.Note(job_id, end);
  training::v1::JobEvent event;
  event.mutable_rank_changed()->set_rank(end.rank);
  const Job& job = *context_.table.Find(job_id);
  event.mutable_rank_changed()->set_host(job.ranks(end.rank).host());
  event.mutable_rank_changed()->set_reason(end.why);
  context_.table.AddEvent(job_id, std::move(event));
  const auto level = end.follows ? spdlog::level::info : spdlog::level::warn;
  context_.table.Announce([this, log = JobLog(job), level, why = end.why] {
    log.Log(level, why);
    context_.workers->Abandon(log.job_id(), why);
  });
  EndGang(job_id);
}

void JobAttempts::EndGang(const std::string& job_id) {
  const Job& job = *context_.table.Find(job_id);
  const RankEnd* const noted = gang_endings_.CauseOf(job_id);
  if (noted == nullptr ||
      std::any_of(job.ranks().begin(), job.ranks().end(),
                  [](const training::v1::RankStatus& status) { return !status.ended(); })) {
    return;
  }
  const RankEnd cause = *noted;
  if (cause.follows) {
    // Every rank reports that another is gone, but all are alive: they lost contact.
    LoseAttempt(job,
                cause.finished.has_value()
                    ? cause.finished->failure()
                    : MakeFailure(training::v1::FAILURE_CAUSE_WORKER_EXIT, cause.why),
                /*never_back=*/false);
  } else if (cause.finished.has_value()) {
    EndAttempt(job, *cause.finished);
  } else {
    LoseAttempt(job, cause.exit);
  }
}

void JobAttempts::EndAttempt(const Job& job, const Finished& finished) {
  const std::string id = job.id();
  Job* ended = context_.table.Edit(id);
  if (finished.has_progress()) *ended->mutable_progress() = finished.progress();
  if (finished.outcome() != Finished::OUTCOME_FAILED) NoteEnd(*ended);
  context_.dispatcher.NotePeak(*ended, finished.peak_memory_bytes(), finished.peak_device_bytes());
  switch (finished.outcome()) {
    case Finished::OUTCOME_COMPLETED:
      // A worker sends Started before it can complete. If that report was lost, the result must
      // still be recorded.
      if (job.state() == training::v1::JOB_STATE_STARTING) {
        context_.ledger.Move(id, training::v1::JOB_STATE_RUNNING, "training");
      }
      if (finished.has_held_out()) *ended->mutable_held_out() = finished.held_out();
      if (finished.curve().steps_size() > 0) {
        training::v1::LossCurve curve = finished.curve();
        curve.set_peak_device_bytes(finished.peak_device_bytes());
        context_.table.PutBaseline(WorkloadKey(job.spec()), id, curve);
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
  context_.table.Announce([this, id] {
    context_.workers->ExpectExit(id, kExitGrace, "it reported the end of its job and did not exit");
  });
}

void JobAttempts::OnFailed(const Job& job, const Failure& failure) {
  const std::string id = job.id();
  if (failure.cause() == training::v1::FAILURE_CAUSE_CHECKPOINT) {
    context_.table.Count([this] { context_.metrics->CheckpointFailed(); });
  }
  const bool runs = IsTraining(job.state());
  if (runs && failure.cause() == training::v1::FAILURE_CAUSE_OUT_OF_MEMORY &&
      job.spec().scheduling().shrink_on_out_of_memory() && job.batch_halvings() == 0) {
    context_.table.Edit(id)->set_batch_halvings(1);
    Requeue(id, absl::StrCat("out of memory; tried again with training.batch_size ",
                             job.spec().training().batch_size() / 2,
                             " and twice the accumulation: ", failure.message()));
  } else if (runs && failure.cause() == training::v1::FAILURE_CAUSE_DEVICE) {
    // After a device error the process is unusable, but the job can run in a new one.
    context_.table.Count([this] { context_.metrics->WorkerRestarted("device_error"); });
    RestartOrFail(id, failure);
  } else {
    Fail(id, failure);
  }
}

void JobAttempts::OnStopped(const Job& job) {
  const std::string id = job.id();
  const std::string at = absl::StrCat(" at step ", job.progress().step());
  const StopRequest* const request = context_.stops.Find(id);
  if (job.state() == training::v1::JOB_STATE_CANCELLING) {
    End(id, training::v1::JOB_STATE_CANCELLED, absl::StrCat(job.state_reason(), at));
  } else if (job.state() == training::v1::JOB_STATE_PAUSING) {
    context_.ledger.Move(id, training::v1::JOB_STATE_PAUSED, absl::StrCat("paused by a user", at));
    LeaveWorker(id);
    context_.dispatcher.StartQueued();
  } else if (request == nullptr) {
    Requeue(id, absl::StrCat("stopped", at,
                             context_.dispatcher.draining() ? " because the daemon drains" : ""));
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
    context_.table.Count([this] { context_.metrics->WorkerRestarted("hang"); });
    RestartOrFail(job_id, MakeFailure(training::v1::FAILURE_CAUSE_HANG, request.reason));
  } else {
    Requeue(job_id, absl::StrCat(request.reason, at));
  }
}

void JobAttempts::OnLost(const WorkerExit& exit) {
  context_.dispatcher.StartQueued();
  if (!IsCurrent(exit.job_id, exit.claim)) return;
  const Job& job = *context_.table.Find(exit.job_id);
  context_.dispatcher.NotePeak(*context_.table.Edit(exit.job_id), exit.exit.peak_memory_bytes, 0);
  if (!IsGang(job)) return LoseAttempt(job, exit);
  if (exit.rank >= job.ranks_size() || job.ranks(exit.rank).ended()) return;
  context_.table.Edit(exit.job_id)->mutable_ranks(exit.rank)->set_ended(true);
  RankEnd end;
  end.rank = exit.rank;
  end.exit = exit;
  end.why = absl::StrCat(DescribeRank(job, exit.rank), ": ", DescribeEnd(exit));
  end.follows = gang_endings_.CauseOf(exit.job_id) != nullptr && !exit.forced.empty();
  EndRank(exit.job_id, end);
}

void JobAttempts::LoseAttempt(const Job& job, const WorkerExit& exit) {
  const std::string who = IsGang(job) ? absl::StrCat(DescribeRank(job, exit.rank), ": ") : "";
  Failure failure = MakeFailure(exit.exit.signal != 0 ? training::v1::FAILURE_CAUSE_SIGNAL
                                                      : training::v1::FAILURE_CAUSE_WORKER_EXIT,
                                absl::StrCat(who, DescribeEnd(exit)));
  failure.set_exit_code(exit.exit.exit_code);
  failure.set_signal(exit.exit.signal);
  for (const std::string& line : exit.log_tail) failure.add_log_tail(line);
  LoseAttempt(job, std::move(failure), exit.never_back);
}

void JobAttempts::LoseAttempt(const Job& job, Failure failure, bool never_back) {
  const std::string id = job.id();
  const StopRequest* const request = context_.stops.Find(id);
  if (job.state() == training::v1::JOB_STATE_CANCELLING) {
    End(id, training::v1::JOB_STATE_CANCELLED, job.state_reason());
  } else if (job.state() == training::v1::JOB_STATE_PAUSING) {
    context_.ledger.Move(id, training::v1::JOB_STATE_PAUSED, "paused; its worker is gone");
    LeaveWorker(id);
  } else if (context_.dispatcher.draining()) {
    Requeue(id, "its worker ended because the daemon drains");
  } else if (request != nullptr) {
    EndStopped(id, *request, "");
  } else if (never_back) {
    // The worker was lost during a restart of the daemon, so this does not count as a restart.
    context_.table.Count([this] { context_.metrics->WorkerRestarted("daemon_restart"); });
    Requeue(id, IsGang(job) ? "a worker of it did not outlive a restart of the daemon"
                            : "its worker did not outlive a restart of the daemon");
  } else {
    context_.table.Count([this] { context_.metrics->WorkerRestarted("crash"); });
    RestartOrFail(id, std::move(failure));
  }
}

void JobAttempts::RestartOrFail(const std::string& job_id, Failure failure) {
  Job* job = context_.table.Edit(job_id);
  const int most = job->spec().max_restarts();
  if (job->restarts() >= most) {
    failure.set_message(absl::StrCat(failure.message(), "; all ", most, " restarts are used up"));
    return Fail(job_id, std::move(failure));
  }
  job->set_restarts(job->restarts() + 1);
  // Jobs that make progress are not delayed.
  const int fruitless = fruitless_restarts_[job_id] + 1;
  context_.table.Count([this, job_id, fruitless] { fruitless_restarts_[job_id] = fruitless; });
  const absl::Duration backoff = RestartBackoff(fruitless);
  if (backoff > absl::ZeroDuration()) context_.dispatcher.RetryAfter(job_id, backoff);
  const std::string reason = absl::StrCat(
      failure.message(), "; restart ", job->restarts(), " of ", most,
      backoff > absl::ZeroDuration() ? absl::StrCat(", after ", absl::FormatDuration(backoff))
                                     : "");
  JobLog(*job).Warn("{}", reason);
  if (IsOnWorker(job->state())) return Requeue(job_id, reason);
  job->set_state_reason(reason);
  training::v1::JobEvent event;
  event.set_updated(reason);
  context_.table.AddEvent(job_id, std::move(event));
}

void JobAttempts::LoseSubmission(const std::string& job_id, const std::string& why) {
  context_.table.Count([this] { context_.metrics->WorkerRestarted("crash"); });
  RestartOrFail(job_id, MakeFailure(training::v1::FAILURE_CAUSE_WORKER_EXIT, why));
}

void JobAttempts::Requeue(const std::string& job_id, const std::string& reason) {
  context_.ledger.Move(job_id, training::v1::JOB_STATE_RECOVERING, reason);
  context_.ledger.Move(job_id, training::v1::JOB_STATE_QUEUED, reason);
  LeaveWorker(job_id);
  context_.dispatcher.StartQueued();
}

void JobAttempts::Fail(const std::string& job_id, Failure failure) {
  const std::string message = failure.message();
  *context_.table.Edit(job_id)->mutable_failure() = std::move(failure);
  End(job_id, training::v1::JOB_STATE_FAILED, message);
}

void JobAttempts::End(const std::string& job_id, JobState state, const std::string& reason) {
  context_.ledger.Move(job_id, state, reason);
  Job* job = context_.table.Edit(job_id);
  *job->mutable_end_time() = ToTimestamp(context_.clock.Now());
  // Must precede LeaveWorker, because the row includes the worker's memory.
  context_.table.Count([this, ended = *job] {
    context_.options.on_history(MakeHistoryRow(ended, context_.precision.gate().enabled,
                                               context_.stats.DeviceMemoryOf(ended.id()),
                                               FromTimestamp(ended.end_time())));
  });
  LeaveWorker(job_id);
  context_.precision.OnJobEnded(*job);
  if (state == training::v1::JOB_STATE_SUCCEEDED) {
    context_.table.Count(
        [this, seconds = job->worker_seconds()] { context_.stats.NoteSuccess(seconds); });
  }
  context_.table.Count([this, ended = *job] {
    fruitless_restarts_.erase(ended.id());
    context_.dispatcher.OnEnded(ended.id());
    JobLog(ended).Info("{}: {}", ShortEnumName(ended.state()), ended.state_reason());
    context_.metrics->JobFinished(ended.state(), ended.failure().cause(), SecondsOnWorkers(ended));
  });
}

void JobAttempts::LeaveWorker(const std::string& job_id) {
  Job* job = context_.table.Edit(job_id);
  job->clear_worker();
  job->clear_waiting_reason();
  context_.table.Announce(
      [this, job_id, status = NoCheckpoint(*job)] { context_.checkpoints.Refuse(job_id, status); });
  if (!context_.dispatcher.OnLeftWorker(*job)) return;
  context_.table.Count([this, job_id] {
    gang_endings_.Forget(job_id);
    unprotected_.End(job_id);
    context_.stops.Forget(job_id);
    context_.stats.NoteLeave(job_id);
  });
}

void JobAttempts::EndOverdue() {
  const absl::Time now = context_.clock.Steady();
  for (const std::string& id : context_.table.Ids()) {
    const Job& job = *context_.table.Find(id);
    if (now < context_.dispatcher.DeadlineOf(job)) continue;
    const std::string reason =
        absl::StrCat("scheduling.deadline_seconds ", job.spec().scheduling().deadline_seconds(),
                     " passed since the job was accepted");
    if (IsTraining(job.state())) {
      if (context_.stops.Find(id) == nullptr) {
        context_.stops.Stop(id, {StopCause::kDeadline, reason});
      }
    } else if (!IsOnWorker(job.state())) {
      Fail(id, MakeFailure(training::v1::FAILURE_CAUSE_DEADLINE,
                           absl::StrCat(reason, "; it was ", ShortEnumName(job.state()))));
    }
  }
}

void JobAttempts::OnCheckpoint(const std::string& job_id, absl::Time snapshot) {
  fruitless_restarts_.erase(job_id);
  unprotected_.Protect(job_id, snapshot);
}

}  // namespace genesis
