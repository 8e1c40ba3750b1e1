#pragma once

#include <string>
#include <vector>

#include "genesis/training/v1/worker_service.pb.h"
#include "server/workers/worker_process.h"

namespace genesis {

// A worker that is gone, and the job it held.
struct WorkerExit {
  std::string worker_id;
  std::string job_id;  // Empty when it never had one.
  int64_t claim = 0;
  ProcessExit exit;
  std::vector<std::string> log_tail;  // Its last output, at most 50 lines.
};

// What the pool tells. Called on the pool's or gRPC's threads; must not block or call back.
class WorkerEvents {
 public:
  virtual ~WorkerEvents() = default;
  // A worker became warm, or a slot became free: a queued job may start.
  virtual void OnCapacity() = 0;
  // Events of one worker come in the order it sent them.
  virtual void OnWorkerEvent(const training::v1::AttachRequest& event) = 0;
  // After the last event of that worker.
  virtual void OnWorkerGone(const WorkerExit& exit) = 0;
};

}  // namespace genesis
