#include "server/ledger/job_ledger.h"

#include <utility>

#include "server/ledger/job_state.h"

namespace genesis {

JobLedger::JobLedger(JobStore* store, Metrics* metrics, const Clock& clock,
                     const RetentionSettings& retention, std::function<void()> on_tick)
    : clock_(clock),
      metrics_(metrics),
      table_(store, &hub_, clock),
      writer_(&table_, std::move(on_tick)) {
  table_.SetRetention(retention);
  table_.OnForgotten(
      [metrics](JobState state) { metrics->JobMoved(state, training::v1::JOB_STATE_UNSPECIFIED); });
}

void JobLedger::Move(const std::string& job_id, JobState to, const std::string& reason) {
  const JobState from = table_.Find(job_id)->state();
  table_.Move(job_id, to, reason);
  table_.Count([this, from, to] { metrics_->JobMoved(from, to); });
}

}  // namespace genesis
