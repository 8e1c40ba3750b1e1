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

// A `Worker` is WorkerTable's state of one worker. Times are Clock::Running unless noted.
struct Worker {
  WorkerPhase phase = WorkerPhase::kStarting;  // Changed only by WorkerTable::Move.
  bool remote = false;                         // Runs on another host, which starts and ends it.
  // 0 for a worker of this machine while it is being started.
  int32_t pid = 0;
  int64_t start_ticks = 0;  // 0 on another host.
  training::v1::DeviceInfo device;
  std::string device_name;
  std::string host;                  // If remote: name of its host.
  std::string peer;                  // If remote: its network address.
  std::string reservation;           // Set if a cluster started the worker for one job.
  absl::Time start;                  // Clock::Now, for display.
  std::shared_ptr<WorkerLink> link;  // Null unless its stream is open.
  bool retiring = false;             // Being drained by an operator: gets no further job.
  std::optional<ProcessExit> exit;   // Set when its process has ended.
  std::string job_id;
  int64_t claim = 0;
  int rank = 0;              // Rank within the job.
  bool abandoned = false;    // Another rank is gone, so this one must end.
  int64_t memory_bytes = 0;  // Device memory reserved for its job.
  int64_t acknowledged = 0;
  ProgressWatch progress;
  // When the next signal is due: SIGTERM, or SIGKILL if `terminated`.
  absl::Time end_at = absl::InfiniteFuture();
  bool terminated = false;
  std::string end_reason;
  // Deadline to reattach while its stream is broken. Separate from end_at, so that a worker that
  // leaves and returns does not postpone end_at.
  absl::Time back_by = absl::InfiniteFuture();
  std::string absence;  // Why its stream is gone; reported if it does not return.
};

// Returns the state that users see and metrics count.
training::v1::WorkerState ShownState(const Worker& worker);

// Returns true if the worker holds no job but is, or will be, available for one.
bool IsSpare(const Worker& worker);

training::v1::WorkerInfo InfoOf(const std::string& id, const Worker& worker);

// Returns the worker's reference, used in leases and in the store.
training::v1::WorkerProcessRef RefOf(const std::string& id, const Worker& worker);

}  // namespace genesis
