#pragma once

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "genesis/training/v1/worker_service.pb.h"
#include "server/workers/worker_events.h"
#include "server/workers/worker_process.h"

namespace genesis {

// The daemon's end of one attached worker; thread-safe; Send never blocks.
class WorkerLink {
 public:
  virtual ~WorkerLink() = default;
  virtual void Send(const training::v1::AttachResponse& command) = 0;
  virtual void Close() = 0;
};

// The worker processes of this machine.
// Purpose: keeps warm spares started, leases one per job, and says truly when a worker is gone:
// when both its process has ended and its stream is drained, so that no last report is lost. Owner:
// the daemon. Thread-safe. Its own thread spawns, watches and ends processes. Failure: a worker
// that cannot start is tried again with growing pauses (1 s to 30 s); start_problem() says why for
// readiness.
class WorkerPool {
 public:
  struct Options {
    std::string program;
    std::string address;  // "unix:/..." of WorkerService.
    std::string log_dir;  // One file per worker; kept when it failed.
    int slots = 1;
    int spares = 1;
    int threads = 1;  // For arithmetic, per worker: the slots share the cores.
    absl::Duration start_timeout = absl::Seconds(120);
  };
  struct Lease {
    std::string worker_id;
    training::v1::DeviceInfo device;
  };
  struct Counts {
    int busy = 0;
    int warm = 0;
    int starting = 0;
  };

  explicit WorkerPool(Options options);
  ~WorkerPool();

  void Start(WorkerEvents* events);
  // Ends every worker (SIGTERM, SIGKILL after `grace`) and the thread. Idempotent.
  void Stop(absl::Duration grace);
  // No new workers from now on; warm ones are sent home.
  void Drain();

  // A warm worker when a slot is free.
  std::optional<Lease> Reserve();
  void Release(const std::string& worker_id);
  // Gives the job to the leased worker.
  void Begin(const std::string& worker_id, const training::v1::StartJob& start);
  // To the worker that holds the job; nothing when there is none.
  void Send(const std::string& job_id, const training::v1::AttachResponse& command);
  // Ends the worker that holds the job if it is still there after `grace`.
  void ExpectExit(const std::string& job_id, absl::Duration grace);

  Counts counts() const;
  int slots() const { return options_.slots; }
  std::string start_problem() const;

  // For WorkerService. Attach refuses a worker that the pool did not start or that has attached.
  absl::Status Attach(const training::v1::Hello& hello, std::shared_ptr<WorkerLink> link);
  void OnMessage(const std::string& worker_id, const training::v1::AttachRequest& message);
  void OnDetached(const std::string& worker_id);

 private:
  struct Worker {
    explicit Worker(WorkerProcess running) : process(std::move(running)) {}
    WorkerProcess process;
    training::v1::DeviceInfo device;
    std::shared_ptr<WorkerLink> link;
    bool attached = false;  // Has said Hello.
    bool leased = false;
    bool attached_ended = false;  // Its stream is drained.
    std::optional<ProcessExit> exit;
    std::string job_id;
    int64_t claim = 0;
    absl::Time kill_at = absl::InfiniteFuture();
  };

  void Loop();
  // One round of the pool's thread; what is to be told is returned, to be told without the lock.
  std::vector<std::function<void()>> Tend();
  void SpawnMissing() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void ReapEnded() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void EndOverdue() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  WorkerExit Bury(const std::string& worker_id, Worker& worker)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void NoteStartFailure(const std::string& problem) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  Worker* FindByJob(const std::string& job_id) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  Counts CountLocked() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void WaitForNews();
  void Wake() const;

  const Options options_;
  WorkerEvents* events_ = nullptr;  // Set by Start.
  int wake_fd_;
  std::thread thread_;

  mutable absl::Mutex mutex_;
  std::map<std::string, Worker> workers_ ABSL_GUARDED_BY(mutex_);
  int64_t next_id_ ABSL_GUARDED_BY(mutex_) = 1;
  bool draining_ ABSL_GUARDED_BY(mutex_) = false;
  bool stopping_ ABSL_GUARDED_BY(mutex_) = false;
  int start_failures_ ABSL_GUARDED_BY(mutex_) = 0;
  absl::Time next_spawn_ ABSL_GUARDED_BY(mutex_) = absl::InfinitePast();
  std::string start_problem_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace genesis
