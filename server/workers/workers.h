#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "genesis/training/v1/operations.pb.h"
#include "genesis/training/v1/worker_service.pb.h"

namespace genesis {

// A warm worker that is kept for one attempt at a job.
struct WorkerLease {
  training::v1::WorkerProcessRef worker;
  training::v1::DeviceInfo device;
};

struct WorkerCounts {
  int busy = 0;
  int warm = 0;
  int starting = 0;
};

// The workers as the rules of jobs see them. WorkerPool is the implementation; tests of those rules
// have their own.
//
// Thread-safe. No call blocks.
class Workers {
 public:
  virtual ~Workers() = default;

  // Takes over the worker that holds a job since before the daemon was restarted, if its process
  // lives. `acknowledged`: Job.worker_sequence.
  virtual bool Adopt(const training::v1::WorkerProcessRef& worker, const std::string& job_id,
                     int64_t claim, int64_t acknowledged, int64_t memory_bytes) = 0;
  // A warm worker on a device with a free slot and that much memory not yet promised to others.
  virtual std::optional<WorkerLease> Reserve(int64_t memory_bytes) = 0;
  virtual void Release(const std::string& worker_id) = 0;
  // Gives the job to the leased worker.
  virtual void Begin(const std::string& worker_id, const training::v1::StartJob& start) = 0;
  // To the worker that holds the job; nothing when there is none.
  virtual void Send(const std::string& job_id, const training::v1::AttachResponse& command) = 0;
  // Events of the job up to `sequence` are durable: the worker need not keep them.
  virtual void Acknowledge(const std::string& job_id, int64_t sequence) = 0;
  // Ends the worker that holds the job if it is still there after `grace`: SIGTERM, soon after
  // SIGKILL; with no grace at once. `why` is kept for WorkerExit.forced.
  virtual void ExpectExit(const std::string& job_id, absl::Duration grace,
                          const std::string& why) = 0;
  // Sends a warm worker home, or marks the one that holds a job, whose id is returned. NOT_FOUND.
  virtual absl::StatusOr<std::string> Retire(const std::string& worker_id) = 0;

  virtual WorkerCounts counts() const = 0;
  virtual int slots() const = 0;
  virtual std::vector<training::v1::WorkerInfo> workers() const = 0;
  // Memory of the largest device; 0 until it is known.
  virtual int64_t largest_device_bytes() const = 0;
};

}  // namespace genesis
