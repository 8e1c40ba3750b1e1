#pragma once

#include <string>
#include <vector>

#include "genesis/training/v1/worker_service.pb.h"
#include "server/workers/worker_process.h"

namespace genesis {

// A worker that is gone, and the job it held.
struct WorkerExit {
  std::string worker_id;
  std::string job_id;  // Empty if it held none.
  int64_t claim = 0;
  int rank = 0;
  ProcessExit exit;
  // True if an earlier daemon had given it the job and it did not reattach to this one.
  bool never_back = false;
  // Why the pool sent it a signal, in one sentence; empty if it exited by itself.
  std::string forced;
  std::vector<std::string> log_tail;  // Its last output, at most 50 lines.
};

// The observer of the pool, called on threads of the pool or gRPC; must not block or call the pool.
class WorkerEvents {
 public:
  virtual ~WorkerEvents() = default;
  // Called when a worker became warm or a slot became free, so that a queued job may start.
  virtual void OnCapacity() = 0;
  // Called with the events of one worker in the order of sending. `rank` is its rank in the job.
  virtual void OnWorkerEvent(const training::v1::AttachRequest& event, int rank) = 0;
  // Called when a worker that holds rank 0 of the job has reattached after a restart of the daemon
  // or a broken stream. It has missed the requests sent while it was detached.
  virtual void OnWorkerBack(const std::string& job_id, int64_t claim) = 0;
  // Called when the worker of a rank makes no progress, as `what` describes. The pool is ending it.
  virtual void OnWorkerHung(const std::string& job_id, int64_t claim, int rank,
                            const std::string& what) = 0;
  // Called after the last event of the worker.
  virtual void OnWorkerGone(const WorkerExit& exit) = 0;
};

}  // namespace genesis
