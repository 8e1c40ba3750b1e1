#include "server/workers/worker_endings.h"

#include <csignal>
#include <utility>

#include "absl/strings/str_cat.h"

namespace genesis {
namespace {

// Time between SIGTERM, on which a worker checkpoints if it can, and SIGKILL.
constexpr absl::Duration kTermGrace = absl::Seconds(10);

}  // namespace

void SignalWorker(const std::string& id, Worker& worker, int signal, WorkerActions& actions) {
  if (!worker.remote) {
    actions.emplace_back(SignalProcess{id, signal});
    return;
  }
  if (signal == SIGTERM && worker.link && HoldsJob(worker.phase)) {
    SendCommand stop{worker.link, {}};
    stop.command.mutable_stop_job()->set_checkpoint(true);
    actions.emplace_back(std::move(stop));
    return;
  }
  // The host ends the worker, which exits when the daemon closes its stream.
  worker.exit = ProcessExit{.known = false};
  if (worker.link) actions.emplace_back(CloseStream{worker.link});
}

SendCommand AbandonCommand(const Worker& worker) {
  SendCommand stop{worker.link, {}};
  stop.command.mutable_stop_job()->set_abandon(true);
  return stop;
}

void EndIfHung(const std::string& id, Worker& worker, const HangSettings& hang, absl::Time now,
               WorkerActions& actions) {
  if (now < worker.progress.Deadline(hang)) return;
  worker.end_reason = worker.progress.Describe(hang);
  worker.progress.End();
  worker.end_at = now;
  actions.emplace_back(
      WriteLog{spdlog::level::err, absl::StrCat("worker ", id, " with job ", worker.job_id, ": ",
                                                worker.end_reason, "; it is ended")});
  actions.emplace_back(TellHung{worker.job_id, worker.claim, worker.rank, worker.end_reason});
}

void EndIfOverdue(const std::string& id, Worker& worker, absl::Duration start_timeout,
                  absl::Time now, bool quietly, WorkerActions& actions) {
  if (now >= worker.back_by && worker.back_by < worker.end_at) {
    worker.end_at = std::exchange(worker.back_by, absl::InfiniteFuture());
    worker.end_reason = worker.absence;
  }
  if (now < worker.end_at) return;
  const bool attached = WasAttached(worker.phase);
  if (!attached) {
    worker.end_reason =
        absl::StrCat("it did not attach within ", absl::FormatDuration(start_timeout));
  }
  const bool by_force = worker.terminated || !attached;
  if (!quietly) {
    actions.emplace_back(
        WriteLog{spdlog::level::warn, absl::StrCat("worker ", id, ": ", worker.end_reason, "; ",
                                                   by_force ? "killed" : "terminated")});
  }
  SignalWorker(id, worker, by_force ? SIGKILL : SIGTERM, actions);
  worker.terminated = true;
  worker.end_at = by_force ? absl::InfiniteFuture() : now + kTermGrace;
}

TellGone ExitOf(const std::string& id, const Worker& worker, bool expected) {
  TellGone gone;
  gone.exit.worker_id = id;
  gone.exit.job_id = worker.job_id;
  gone.exit.claim = worker.claim;
  gone.exit.rank = worker.rank;
  gone.exit.exit = *worker.exit;
  gone.exit.never_back = worker.phase == WorkerPhase::kAdopted;
  if (worker.terminated) gone.exit.forced = worker.end_reason;
  gone.remote = worker.remote;
  const bool finished = worker.phase == WorkerPhase::kFinishing;
  gone.clean = worker.exit->exit_code == 0 || (!worker.exit->known && finished);
  if (expected) return gone;
  gone.failed_to_start = !WasAttached(worker.phase);
  gone.unexpected =
      !gone.failed_to_start && !gone.clean && !(worker.job_id.empty() && worker.remote);
  return gone;
}

}  // namespace genesis
