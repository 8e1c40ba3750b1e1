#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "genesis/training/v1/operations.pb.h"
#include "genesis/training/v1/worker_service.pb.h"

namespace genesis {

// A warm worker reserved for one attempt at a job.
struct WorkerLease {
  training::v1::WorkerProcessRef worker;
  training::v1::DeviceInfo device;
  std::string host;  // Empty for a worker of this machine.
  std::string peer;  // The network address of a worker of another host.
};

// Counts of workers. Workers with a reservation are separate, because they take no slots.
struct WorkerCounts {
  int busy = 0;
  int warm = 0;
  int starting = 0;
  int reserved_busy = 0;
};

// An interface to the workers for the code that manages jobs. WorkerPool implements it; tests use
// fakes. A job is held by one worker, or by several (a gang), each with a rank from 0.
//
// Thread-safe. No call blocks.
class Workers {
 public:
  virtual ~Workers() = default;

  // Takes over a worker that has held a rank of a job since before the daemon's restart. Returns
  // false if its process is not alive. `acknowledged` is Job.worker_sequence.
  virtual bool Adopt(const training::v1::WorkerProcessRef& worker, const std::string& job_id,
                     int rank, int64_t claim, int64_t acknowledged, int64_t memory_bytes) = 0;
  // Reserves as many warm workers as the job has ranks, or none: a partial reservation could make
  // two gangs wait for each other. Each worker's device has a free slot and `memory_bytes` of
  // unreserved memory. Workers of one host are adjacent, and all are on one host if one has enough.
  // If warm workers are missing and slots are free, more are started.
  virtual std::vector<WorkerLease> ReserveGang(int ranks, int64_t memory_bytes) = 0;
  virtual void Release(const std::string& worker_id) = 0;
  // Allows workers that a cluster starts for one job to attach under that name. They take no slot
  // and get only that job.
  virtual void OpenReservation(const std::string& name) = 0;
  // Lets no more workers attach under that name, and dismisses those without a job. Idempotent.
  virtual void CloseReservation(const std::string& name) = 0;
  // Reserves `ranks` warm workers of the reservation, or none, in the order of ReserveGang.
  virtual std::vector<WorkerLease> ReserveSubmitted(const std::string& name, int ranks) = 0;
  // Returns the number of warm workers of the reservation.
  virtual int WarmOf(const std::string& name) const = 0;
  // Sends the job to the leased worker.
  virtual void Begin(const std::string& worker_id, const training::v1::StartJob& start) = 0;
  // Sends a command to rank 0 of the job, which forwards it to the other ranks. Does nothing if no
  // worker holds the job.
  virtual void Send(const std::string& job_id, const training::v1::AttachResponse& command) = 0;
  // Allows the worker to drop events of rank 0 up to `sequence`, because they are durable.
  virtual void Acknowledge(const std::string& job_id, int64_t sequence) = 0;
  // Ends the workers that still hold the job after `grace`, with SIGTERM and soon afterwards
  // SIGKILL. If `grace` is 0, sends SIGKILL at once. `why` becomes WorkerExit.forced.
  virtual void ExpectExit(const std::string& job_id, absl::Duration grace,
                          const std::string& why) = 0;
  // Requests the end of the remaining ranks of a job, because they cannot continue when one is
  // gone. Workers that do not comply are ended soon afterwards.
  virtual void Abandon(const std::string& job_id, const std::string& why) = 0;
  // Dismisses a warm worker. Any other gets no further job. Returns its job's ID, or NOT_FOUND.
  virtual absl::StatusOr<std::string> Retire(const std::string& worker_id) = 0;

  virtual WorkerCounts counts() const = 0;
  virtual int slots() const = 0;
  // Returns the number of slots that a job can get now or after a worker for them has been started.
  virtual int free_slots() const = 0;
  // Returns true if workers of other hosts may attach, so that slots may be added later.
  virtual bool takes_remote() const = 0;
  virtual std::vector<training::v1::WorkerInfo> workers() const = 0;
  // Returns the memory of the largest device in bytes; 0 until known.
  virtual int64_t largest_device_bytes() const = 0;
};

}  // namespace genesis
