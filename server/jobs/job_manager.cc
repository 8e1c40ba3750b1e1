#include "server/jobs/job_manager.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "base/steady_time.h"
#include "base/timestamp.h"
#include "server/jobs/job_state.h"
#include "spdlog/spdlog.h"

namespace genesis {

JobManager::JobManager(Options options, JobStore* store, WorkerPool* pool, Metrics* metrics)
    : options_(std::move(options)),
      pool_(pool),
      metrics_(metrics),
      table_(store, &hub_),
      writer_(&table_, [this] { OnTime(); }),
      queue_limit_(options_.queue_max_jobs),
      failure_watch_(options_.failure_watch),
      unprotected_(metrics) {
  table_.SetRetention(options_.retention);
  table_.OnForgotten(
      [metrics](JobState state) { metrics->JobMoved(state, training::v1::JOB_STATE_UNSPECIFIED); });
}

JobManager::~JobManager() { Stop(); }

absl::Status JobManager::Recover() {
  absl::Status loaded = table_.Load();
  if (!loaded.ok()) return loaded;
  LoadPolicy();
  for (const auto& [state, count] : view().CountsByState()) metrics_->SetJobs(state, count);
  for (const std::string& id : table_.Ids()) {
    const Job& job = *table_.Find(id);
    NoteTimes(job);
    if (IsOnWorker(job.state())) {
      RecoverRunning(job);
    } else if (job.state() == training::v1::JOB_STATE_RECOVERING) {
      Move(id, training::v1::JOB_STATE_QUEUED, job.state_reason());
    }
  }
  return table_.Commit();
}

void JobManager::RecoverRunning(const Job& job) {
  const std::string id = job.id();
  if (job.has_worker() &&
      pool_->Adopt(job.worker(), id, job.claim(), job.worker_sequence(), MemoryOf(job.spec()))) {
    spdlog::info("job {}: its worker {} lives and keeps it", id, job.worker().worker_id());
    attempt_starts_[id] = SteadyNow();
    unprotected_.Adopt(job);
    return;
  }
  if (job.state() == training::v1::JOB_STATE_CANCELLING) {
    End(id, training::v1::JOB_STATE_CANCELLED, "cancelled; the daemon was restarted meanwhile");
  } else if (job.state() == training::v1::JOB_STATE_PAUSING) {
    Move(id, training::v1::JOB_STATE_PAUSED, "paused; the daemon was restarted meanwhile");
    LeaveWorker(id);
  } else {
    metrics_->WorkerRestarted("daemon_restart");
    Requeue(id, "the daemon was restarted while the job ran");
  }
}

void JobManager::Start() { writer_.Start(); }

void JobManager::Stop() { writer_.Stop(); }

void JobManager::Drain() {
  draining_ = true;
  writer_.Post({[this] {
                  for (const std::string& id : table_.Ids()) {
                    const Job& job = *table_.Find(id);
                    // After the job was given to its worker, should that be of the same commit.
                    if (IsOnWorker(job.state())) {
                      AskToStop(job, /*checkpoint=*/true, "the daemon drains");
                    }
                  }
                },
                nullptr});
}

}  // namespace genesis
