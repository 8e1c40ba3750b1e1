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
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "genesis/training/v1/operations.pb.h"
#include "genesis/training/v1/worker_service.pb.h"
#include "server/workers/device_table.h"
#include "server/workers/progress_watch.h"
#include "server/workers/worker_events.h"
#include "server/workers/worker_logs.h"
#include "server/workers/worker_process.h"
#include "server/workers/workers.h"

namespace genesis {

// The daemon's end of one attached worker; thread-safe; Send never blocks.
class WorkerLink {
 public:
  virtual ~WorkerLink() = default;
  virtual void Send(const training::v1::AttachResponse& command) = 0;
  virtual void Close() = 0;
};

// The worker processes of this machine, and those of other hosts that attach.
// Purpose: keeps warm spares started on each device, leases one per job, ends those that hang, and
// says truly when a worker is gone: when both its process has ended and its stream is drained, so
// that no last report is lost. A worker whose stream breaks, or whose daemon was restarted, keeps
// its job for a while and may attach again. A worker of another host is started and ended by that
// host; it is gone when its stream is and it does not attach again in time, and by then it has
// stopped (config/job/worker_lease.h). Owner: the daemon. Thread-safe. Its own thread spawns,
// watches and ends processes. Failure: a worker that cannot start is tried again with growing
// pauses (1 s to 30 s); problem() says why for readiness.
class WorkerPool final : public Workers {
 public:
  struct Options {
    std::string program;
    std::string address;  // "unix:/..." of WorkerService.
    std::string log_dir;  // See WorkerLogs.
    DeviceTable::Options devices;
    int spares = 1;   // Per device.
    int threads = 1;  // For arithmetic, per worker: the slots share the cores.
    absl::Duration start_timeout = absl::Seconds(120);
    absl::Duration reattach_timeout = absl::Seconds(30);
    // Where workers of other hosts may attach: the checkpoint folder that they must see.
    std::optional<training::v1::SharedFolder> remote;
    SectionTimeouts hang;
  };
  using Lease = WorkerLease;
  using Counts = WorkerCounts;

  explicit WorkerPool(Options options);
  ~WorkerPool() override;

  // Before Start. An adopted worker has reattach_timeout to dial.
  bool Adopt(const training::v1::WorkerProcessRef& worker, const std::string& job_id, int64_t claim,
             int64_t acknowledged, int64_t memory_bytes) override;
  void Start(WorkerEvents* events);
  // Ends every worker (SIGTERM, SIGKILL after `grace`) and the thread. Idempotent.
  void Stop(absl::Duration grace);
  // No new workers from now on; warm ones are sent home.
  void Drain();

  std::optional<Lease> Reserve(int64_t memory_bytes) override;
  void Release(const std::string& worker_id) override;
  void Begin(const std::string& worker_id, const training::v1::StartJob& start) override;
  void Send(const std::string& job_id, const training::v1::AttachResponse& command) override;
  void Acknowledge(const std::string& job_id, int64_t sequence) override;
  void ExpectExit(const std::string& job_id, absl::Duration grace, const std::string& why) override;
  absl::StatusOr<std::string> Retire(const std::string& worker_id) override;

  Counts counts() const override;
  int slots() const override;
  std::vector<training::v1::WorkerInfo> workers() const override;
  int64_t largest_device_bytes() const override;
  std::vector<training::v1::DeviceStatus> devices() const;
  // Why no job can be run, for readiness; empty when some can.
  std::string problem() const;
  // Faults that do not stop it, such as one device of several in quarantine.
  std::vector<std::string> notes() const;

  // For WorkerService. Attach refuses a worker that the pool does not await, or that comes over the
  // network (`remote`) and may not.
  absl::Status Attach(const training::v1::AttachRequest& hello, bool remote,
                      std::shared_ptr<WorkerLink> link);
  void OnMessage(const std::string& worker_id, const training::v1::AttachRequest& message);
  // Whether the end of its job is still to come.
  bool HoldsJob(const std::string& worker_id) const;
  void OnDetached(const std::string& worker_id, const WorkerLink* link);

 private:
  struct Worker {
    explicit Worker(std::optional<WorkerProcess> running) : process(std::move(running)) {}
    std::optional<WorkerProcess> process;  // None on another host.
    int32_t pid = 0;
    training::v1::DeviceInfo device;
    std::string device_name;
    absl::Time start = absl::Now();    // For people.
    std::shared_ptr<WorkerLink> link;  // While its stream is open.
    bool was_attached = false;         // Has said Hello, now or before.
    bool adopted = false;              // From an earlier daemon, and not back yet.
    bool leased = false;
    bool retiring = false;
    bool said_end = false;  // Its job's Finished has come.
    std::optional<ProcessExit> exit;
    std::string job_id;
    int64_t claim = 0;
    int64_t memory_bytes = 0;
    int64_t acknowledged = 0;
    ProgressWatch progress;
    // When the next signal is due, SIGTERM first unless `terminated`. Of SteadyNow().
    absl::Time end_at = absl::InfiniteFuture();
    bool terminated = false;
    std::string end_reason;
    // Until when it must be back, while its stream is broken. Apart from end_at, which a worker
    // that comes and goes does not put off.
    absl::Time back_by = absl::InfiniteFuture();
    std::string absence;  // Why it is awaited: what is told when it does not come.

    // A job whose end has not come.
    bool holds_job() const { return !job_id.empty() && !said_end; }
  };
  using PendingCallbacks = std::vector<std::function<void()>>;

  void Loop();
  // One round of the pool's thread; what is to be told is returned, to be told without the lock.
  PendingCallbacks Tend();
  void ReapEnded() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void EndHung(PendingCallbacks& callbacks) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void EndOverdue() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void RemoveGone(PendingCallbacks& callbacks) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Asks the worker to end (SIGTERM), or ends it (SIGKILL); on another host, as far as that can be
  // done from here.
  void Signal(Worker& worker, int signal) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  WorkerExit ExitOf(const std::string& worker_id, Worker& worker)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void SpawnMissing() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  bool Spawn(const std::string& device) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void NoteStartFailure(const std::string& problem) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  Worker& Add(const std::string& id, WorkerProcess process) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  Worker& AddRemote(const std::string& id, int32_t pid, const std::string& device)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // The worker that says Hello; an error when it may not attach.
  absl::StatusOr<Worker*> Welcome(const training::v1::AttachRequest& request, bool remote)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void NoteEndOfJob(Worker& worker, const training::v1::Finished& finished)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void Take(Worker& worker, int64_t memory_bytes) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void GiveBack(Worker& worker) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  Worker* FindByJob(const std::string& job_id) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  Counts Count(const std::string& device) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  training::v1::WorkerInfo InfoOf(const std::string& id, const Worker& worker) const
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void TrimLogs();
  void WaitForNews();
  void Wake() const;

  const Options options_;
  const WorkerLogs logs_;
  absl::Time next_trim_ = absl::InfinitePast();  // The thread's own.
  WorkerEvents* events_ = nullptr;               // Set by Start.
  int wake_fd_;
  std::thread thread_;

  mutable absl::Mutex mutex_;
  DeviceTable devices_ ABSL_GUARDED_BY(mutex_);
  std::map<std::string, Worker> workers_ ABSL_GUARDED_BY(mutex_);
  int64_t next_id_ ABSL_GUARDED_BY(mutex_) = 1;
  bool draining_ ABSL_GUARDED_BY(mutex_) = false;
  bool stopping_ ABSL_GUARDED_BY(mutex_) = false;
  int start_failures_ ABSL_GUARDED_BY(mutex_) = 0;
  absl::Time next_spawn_ ABSL_GUARDED_BY(mutex_) = absl::InfinitePast();
  std::string start_problem_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace genesis
