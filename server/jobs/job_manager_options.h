#pragma once

#include <functional>
#include <string>

#include "config/precision/gate.h"
#include "config/settings/settings.h"
#include "genesis/training/v1/operations.pb.h"
#include "server/launchers/launchers.h"

namespace genesis {

// The settings of JobManager that never change while it lives.
struct JobManagerOptions {
  std::string datasets_root;
  std::string checkpoints_dir;
  std::string compiled_dir = {};  // Of compiled steps; need not exist.
  bool cuda_graphs = WorkerSettings().cuda_graphs;
  QueueSettings queue;
  SchedulerSettings scheduler;
  PrecisionGate gate;
  PrecisionSettings precision;
  RehearsalSettings rehearsals;
  RetentionSettings retention;
  // Told how each job ended, on the writer thread; must not block.
  std::function<void(const training::v1::HistoryRow&)> on_history =
      [](const training::v1::HistoryRow&) {};
  Launchers* launchers = nullptr;  // The clusters that may be asked for workers; null for none.
  int launcher_poll_seconds = LauncherSettings().poll_seconds;
};

}  // namespace genesis
