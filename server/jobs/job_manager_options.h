#pragma once

#include <functional>
#include <string>

#include "config/precision/gate.h"
#include "config/settings/settings.h"
#include "genesis/training/v1/operations.pb.h"
#include "server/auth/dataset_owners.h"
#include "server/launchers/launchers.h"

namespace genesis {

// The settings of JobManager that never change during its lifetime.
struct JobManagerOptions {
  std::string datasets_root;
  std::string checkpoints_dir;
  std::string compiled_dir = {};  // Folder of compiled steps; need not exist.
  bool cuda_graphs = WorkerSettings().cuda_graphs;
  QueueSettings queue;
  QuotaSettings quotas = {};
  bool own_jobs_only = AuthSettings().own_jobs_only;
  SchedulerSettings scheduler;
  PrecisionGate gate;
  PrecisionSettings precision;
  RehearsalSettings rehearsals;
  RetentionSettings retention;
  // Called on the writer thread at milestones, evaluations and ends of jobs; must not block.
  std::function<void(const training::v1::HistoryRow&)> on_history =
      [](const training::v1::HistoryRow&) {};
  // Null: datasets have no owners, and no bytes are limited.
  const DatasetOwners* owners = nullptr;
  // The clusters from which workers may be requested; null for none.
  Launchers* launchers = nullptr;
  int launcher_poll_seconds = LauncherSettings().poll_seconds;
};

}  // namespace genesis
