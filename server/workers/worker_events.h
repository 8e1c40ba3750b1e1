#pragma once

#include <string>
#include <vector>

#include "genesis/training/v1/worker_service.pb.h"
#include "server/workers/worker_process.h"

namespace genesis {

// A worker that is gone, and the job it held.
struct WorkerExit {
  std::string worker_id;
  std::string job_id;  // Empty if it never had one.
  int64_t claim = 0;
  int rank = 0;
  ProcessExit exit;
  // An earlier daemon had started it, and it did not attach to this one.
  bool never_back = false;
  // Reason why the pool killed it, in one sentence; empty if it ended by itself.
  std::string forced;
  std::vector<std::string> log_tail;  // Its last output, at most 50 lines.
};

// The observer of the pool. Called on the pool's or gRPC's threads; must not block or call back.
class WorkerEvents {
 public:
  virtual ~WorkerEvents() = default;
  // A worker became warm, or a slot became free: a queued job may start.
  virtual void OnCapacity() = 0;
  // Events of one worker arrive in the order of sending. `rank`: its rank in the job.
  virtual void OnWorkerEvent(const training::v1::AttachRequest& event, int rank) = 0;
  // A worker that held rank 0 of the job through a restart of the daemon, or through a broken
  // stream, is back. It has missed the requests sent meanwhile.
  virtual void OnWorkerBack(const std::string& job_id, int64_t claim) = 0;
  // The worker of a rank makes no progress, as `what` describes; it is being ended.
  virtual void OnWorkerHung(const std::string& job_id, int64_t claim, int rank,
                            const std::string& what) = 0;
  // Called after the last event of that worker.
  virtual void OnWorkerGone(const WorkerExit& exit) = 0;
};

}  // namespace genesis
