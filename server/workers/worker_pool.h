#pragma once

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
#include "server/workers/worker_actions.h"
#include "server/workers/worker_events.h"
#include "server/workers/worker_link.h"
#include "server/workers/worker_logs.h"
#include "server/workers/worker_process.h"
#include "server/workers/worker_table.h"
#include "server/workers/workers.h"

namespace genesis {

// The worker processes of this machine, and those of other hosts that attach.
// Purpose: keeps warm spares started on each device, leases one per job, ends those that hang, and
// says truly when a worker is gone: when both its process has ended and its stream is drained, so
// that no last report is lost. A worker whose stream breaks, or whose daemon was restarted, keeps
// its job for a while and may attach again. A worker of another host is started and ended by that
// host; it is gone when its stream is and it does not attach again in time, and by then it has
// stopped (config/job/worker_lease.h). WorkerTable decides under the lock; processes, logs, streams
// and events are touched after it. Owner: the daemon. Thread-safe. Its own thread spawns, watches
// and ends processes. Failure: a worker that cannot start is tried again with growing pauses (1 s
// to 30 s); problem() says why for readiness.
class WorkerPool final : public Workers {
 public:
  struct Options : WorkerTable::Options {
    std::string address;  // "unix:/..." of WorkerService.
    std::string log_dir;  // See WorkerLogs.
    int threads = 1;      // For arithmetic, per worker: the slots share the cores.
  };
  using Counts = WorkerCounts;

  explicit WorkerPool(Options options);
  ~WorkerPool() override;

  // Before Start. An adopted worker has reattach_timeout to dial.
  bool Adopt(const training::v1::WorkerProcessRef& worker, const std::string& job_id, int rank,
             int64_t claim, int64_t acknowledged, int64_t memory_bytes) override;
  // Before a worker can dial: one that lived through a restart dials as soon as there is a socket.
  void SetEvents(WorkerEvents* events) { events_ = events; }
  void Start();
  // Ends every worker (SIGTERM, SIGKILL after `grace`) and the thread. Idempotent.
  void Stop(absl::Duration grace);
  // No new workers from now on; warm ones are sent home.
  void Drain();

  std::vector<WorkerLease> ReserveGang(int ranks, int64_t memory_bytes) override;
  void Release(const std::string& worker_id) override;
  void OpenReservation(const std::string& name) override;
  void CloseReservation(const std::string& name) override;
  std::vector<WorkerLease> ReserveSubmitted(const std::string& name, int ranks) override;
  int WarmOf(const std::string& name) const override;
  void Begin(const std::string& worker_id, const training::v1::StartJob& start) override;
  void Send(const std::string& job_id, const training::v1::AttachResponse& command) override;
  void Acknowledge(const std::string& job_id, int64_t sequence) override;
  void ExpectExit(const std::string& job_id, absl::Duration grace, const std::string& why) override;
  void Abandon(const std::string& job_id, const std::string& why) override;
  absl::StatusOr<std::string> Retire(const std::string& worker_id) override;

  Counts counts() const override;
  int slots() const override;
  int free_slots() const override;
  bool takes_remote() const override { return options_.remote.has_value(); }
  std::vector<training::v1::WorkerInfo> workers() const override;
  int64_t largest_device_bytes() const override;
  std::vector<training::v1::DeviceStatus> devices() const;
  // Why no job can be run, for readiness; empty when some can.
  std::string problem() const;
  // Faults that do not stop it, such as one device of several in quarantine.
  std::vector<std::string> notes() const;

  // For WorkerService. Attach refuses a worker that the pool does not await, or that comes over the
  // network (`remote`) and may not.
  // `peer`: the address that a worker of another host dials from.
  absl::Status Attach(const training::v1::AttachRequest& hello, bool remote,
                      std::shared_ptr<WorkerLink> link, const std::string& peer = "");
  void OnMessage(const std::string& worker_id, const training::v1::AttachRequest& message);
  // Whether the end of its job is still to come.
  bool HoldsJob(const std::string& worker_id) const;
  void OnDetached(const std::string& worker_id, const WorkerLink* link);

 private:
  // By worker.
  using Processes = std::map<std::string, std::shared_ptr<const WorkerProcess>>;

  // The thread's, in each round.
  void Loop();
  void ReapEnded();
  void SpawnMissing();
  bool Spawn(const SpawnWorker& spawn);
  void TrimLogs();
  void WaitForNews();
  void Wake() const;

  // Does what the table decided. Without the lock: a stream, a disk or a listener may be slow.
  void Perform(const WorkerActions& actions) ABSL_LOCKS_EXCLUDED(mutex_);
  void Do(const SendCommand& send);
  void Do(const CloseStream& close);
  void Do(const SignalProcess& signal);
  void Do(const WriteLog& log);
  void Do(const TellCapacity& capacity);
  void Do(const TellBack& back);
  void Do(const TellHung& hung);
  void Do(const TellGone& gone);
  Processes RunningProcesses() const;

  const Options options_;
  const WorkerLogs logs_;
  absl::Time next_trim_ = absl::InfinitePast();  // The thread's own.
  WorkerEvents* events_ = nullptr;
  int wake_fd_;
  std::thread thread_;

  mutable absl::Mutex mutex_;
  WorkerTable table_ ABSL_GUARDED_BY(mutex_);
  // Processes that have not been reaped.
  Processes processes_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace genesis
