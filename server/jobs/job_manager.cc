#include "server/jobs/job_manager.h"

#include <utility>

#include "server/ledger/job_state.h"

namespace genesis {

using training::v1::Job;

JobManager::JobManager(Options options, JobStore* store, Workers* workers, Metrics* metrics,
                       const Clock& clock)
    : options_(std::move(options)),
      stats_(metrics, !options_.own_jobs_only),
      ledger_(store, metrics, clock, options_.retention, [this] { OnTime(); }),
      stops_(&ledger_, workers),
      precision_(options_, &ledger_, &stops_, workers, metrics),
      checkpoints_(&ledger_, workers),
      dispatcher_(options_, &ledger_, &stops_, &precision_, &stats_, workers, metrics),
      context_{.options = options_,
               .ledger = ledger_,
               .table = ledger_.table(),
               .writer = ledger_.writer(),
               .clock = clock,
               .stops = stops_,
               .precision = precision_,
               .checkpoints = checkpoints_,
               .dispatcher = dispatcher_,
               .stats = stats_,
               .workers = workers,
               .metrics = metrics},
      attempts_(context_),
      metric_reports_(context_),
      reports_(context_, &attempts_, &metric_reports_),
      submissions_(context_, &attempts_),
      queries_(&ledger_, &dispatcher_, &precision_, &stats_, workers,
               Visibility(options_.own_jobs_only)),
      admission_(options_, &ledger_, &dispatcher_, workers, metrics),
      requests_(context_, &attempts_, &admission_, &metric_reports_),
      evaluations_(&ledger_.view(), clock),
      metrics_(metrics) {}

JobManager::~JobManager() { Stop(); }

absl::Status JobManager::Recover() {
  JobTable& table = ledger_.table();
  absl::Status loaded = table.Load();
  if (!loaded.ok()) return loaded;
  precision_.Load();
  for (const auto& [state, count] : view().CountsByState()) metrics_->SetJobs(state, count);
  for (const std::string& id : table.Ids()) {
    const Job& job = *table.Find(id);
    dispatcher_.OnRecovered(job);
    if (IsOnWorker(job.state())) {
      attempts_.Recover(job);
    } else if (job.state() == training::v1::JOB_STATE_RECOVERING) {
      ledger_.Move(id, training::v1::JOB_STATE_QUEUED, job.state_reason());
    }
  }
  submissions_.Recover();
  return table.Commit();
}

void JobManager::Start() { ledger_.writer().Start(); }

void JobManager::Stop() { ledger_.writer().Stop(); }

void JobManager::Drain() {
  dispatcher_.Drain();
  ledger_.writer().Post({[this] {
                           const JobTable& table = ledger_.table();
                           for (const std::string& id : table.Ids()) {
                             const Job& job = *table.Find(id);
                             // If a commit also contains the job's assignment to a worker, the stop
                             // is sent after the assignment.
                             if (!IsOnWorker(job.state())) continue;
                             stops_.Ask(job, /*checkpoint=*/true, "the daemon drains");
                           }
                         },
                         nullptr});
}

void JobManager::SetFailureWatch(FailureWatchAction action) {
  ledger_.writer().Post({[this, action] { precision_.SetFailureWatch(action); }, [](auto&) {}});
}

// New quotas may allow queued jobs to start.
void JobManager::SetQuotas(const QuotaSettings& quotas) {
  dispatcher_.quotas().Set(quotas);
  ledger_.writer().Post({[this] { dispatcher_.StartQueued(); }, nullptr});
}

void JobManager::Write(std::function<absl::Status(Database&)> write,
                       std::function<void(const absl::Status&)> done) {
  ledger_.writer().Post({[this, write = std::move(write), done] {
                           ledger_.table().AddWrite(write);
                           ledger_.table().Announce([done] { done(absl::OkStatus()); });
                         },
                         done});
}

void JobManager::AskWriter(std::function<void()> alive) {
  ledger_.writer().Post({std::move(alive), [](auto&) {}});
}

void JobManager::OnTime() {
  stats_.Sample(ledger_.clock().Steady());
  attempts_.EndOverdue();
  dispatcher_.OnTime();
  submissions_.OnTime();
  checkpoints_.RefuseWhileStoreFails();
}

}  // namespace genesis
