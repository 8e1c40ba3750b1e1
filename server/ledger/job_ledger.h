#pragma once

#include <functional>
#include <string>

#include "base/clock.h"
#include "config/settings/settings.h"
#include "metrics/metrics.h"
#include "server/ledger/event_hub.h"
#include "server/ledger/job_table.h"
#include "server/ledger/writer.h"

namespace genesis {

// The jobs and the only way to change them: a change runs on the writer thread, is stored, then
// counted, and only then announced to callers, watchers and workers.
//
// Owner: JobManager. Threads: any for writer(), view() and hub(); the writer's for the rest.
class JobLedger {
 public:
  // `on_tick` is passed to Writer.
  JobLedger(JobStore* store, Metrics* metrics, const Clock& clock,
            const RetentionSettings& retention, std::function<void()> on_tick);

  JobTable& table() { return table_; }
  Writer& writer() { return writer_; }
  EventHub& hub() { return hub_; }
  const JobView& view() const { return table_.view(); }
  const Clock& clock() const { return clock_; }

  // Makes a legal move of job_state.h and counts it in the metrics.
  void Move(const std::string& job_id, training::v1::JobState to, const std::string& reason);

 private:
  const Clock& clock_;
  Metrics* const metrics_;
  EventHub hub_;
  JobTable table_;
  Writer writer_;
};

}  // namespace genesis
