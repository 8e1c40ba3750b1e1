#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "absl/time/time.h"
#include "genesis/training/v1/operations.pb.h"
#include "genesis/training/v1/worker_service.pb.h"
#include "server/workers/progress_watch.h"
#include "server/workers/worker_link.h"
#include "server/workers/worker_phase.h"
#include "server/workers/worker_process.h"

namespace genesis {

// A `Worker` is what WorkerTable knows of one worker. Times are of Clock::Running unless said.
struct Worker {
  WorkerPhase phase = WorkerPhase::kStarting;  // Changed by WorkerTable::Move alone.
  bool remote = false;                         // On another host, which starts and ends it.
  // 0 for a worker of this machine while it is being started.
  int32_t pid = 0;
  int64_t start_ticks = 0;  // 0 on another host.
  training::v1::DeviceInfo device;
  std::string device_name;
  std::string host;                  // Where it is remote: the name of its host,
  std::string peer;                  // and the address that it dials from.
  std::string reservation;           // Of a worker that a cluster started for one job.
  absl::Time start;                  // Of Clock::Now, for people.
  std::shared_ptr<WorkerLink> link;  // While its stream is open.
  bool retiring = false;             // An operator wants it to get no job after this one.
  std::optional<ProcessExit> exit;   // Its process has ended.
  std::string job_id;
  int64_t claim = 0;
  int rank = 0;              // Among those that hold the job.
  bool abandoned = false;    // Another of them is gone, and it is to end.
  int64_t memory_bytes = 0;  // Promised to its job.
  int64_t acknowledged = 0;
  ProgressWatch progress;
  // When the next signal is due, SIGTERM first unless `terminated`.
  absl::Time end_at = absl::InfiniteFuture();
  bool terminated = false;
  std::string end_reason;
  // Until when it must be back, while its stream is broken. Apart from end_at, which a worker
  // that comes and goes does not put off.
  absl::Time back_by = absl::InfiniteFuture();
  std::string absence;  // Why it is awaited: what is told when it does not come.
};

// Where it is in its life, as people and counts see it.
training::v1::WorkerState ShownState(const Worker& worker);

// Has or will have its turn at a job that it does not hold yet.
bool IsSpare(const Worker& worker);

training::v1::WorkerInfo InfoOf(const std::string& id, const Worker& worker);

// The worker as a lease and the store name it.
training::v1::WorkerProcessRef RefOf(const std::string& id, const Worker& worker);

}  // namespace genesis
