#pragma once

#include <functional>
#include <string>

#include "config/job/job_spec.h"
#include "config/precision/gate.h"
#include "config/precision/precision.h"
#include "genesis/training/v1/operations.pb.h"
#include "server/jobs/failure_watch.h"
#include "server/jobs/retention.h"

namespace genesis {

// The settings of JobManager that never change while it lives.
struct JobManagerOptions {
  std::string datasets_root;
  std::string checkpoints_dir;
  std::string compiled_dir = {};  // Of compiled steps; need not exist.
  bool cuda_graphs = false;
  int queue_max_jobs = 1000;
  bool preemption = true;
  PrecisionGate gate;
  CpuFallback cpu_fallback = CpuFallback::kBf16;
  FailureWatchAction failure_watch = FailureWatchAction::kEnforce;
  bool rehearsals_allowed = false;
  LossScaleSettings loss_scale;
  Retention retention;
  // Told how each job ended, on the writer thread; must not block.
  std::function<void(const training::v1::HistoryRow&)> on_history =
      [](const training::v1::HistoryRow&) {};
};

}  // namespace genesis
