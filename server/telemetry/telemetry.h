#pragma once

#include <functional>
#include <string>
#include <vector>

#include "genesis/training/v1/operations.pb.h"
#include "metrics/metrics.h"
#include "server/store/history_store.h"
#include "server/telemetry/history_recorder.h"
#include "server/telemetry/machine_monitor.h"

namespace genesis {

// The measurements of the machine, and the history of the jobs in metrics.db.
//
// Owner: the daemon. Threads: see MachineMonitor and HistoryRecorder. Failure: see HistoryRecorder.
class Telemetry {
 public:
  struct Options {
    std::string data_dir;
    MachineMonitor::Options machine;
    HistoryRecorder::Options history;
  };
  // `sample` returns the history rows of the running jobs.
  Telemetry(Options options, Metrics* metrics, std::function<HistoryRecorder::Rows()> sample)
      : monitor_(std::move(options.machine), metrics),
        history_(options.data_dir + "/metrics.db"),
        recorder_(options.history, &history_, metrics, std::move(sample)) {}

  void Start() {
    monitor_.Start();
    recorder_.Start();
  }
  // Writes the queued rows if possible. Idempotent.
  void Stop() {
    recorder_.Stop();
    monitor_.Stop();
  }
  void Note(const training::v1::HistoryRow& row) { recorder_.Note(row); }
  // Removes old measurements of the machine from the metrics.
  void HideStale() { monitor_.HideStale(); }
  HistoryStore* history() { return &history_; }

 private:
  MachineMonitor monitor_;
  HistoryStore history_;
  HistoryRecorder recorder_;
};

}  // namespace genesis
