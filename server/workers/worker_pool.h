#pragma once

#include <map>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <type_traits>
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

// The worker processes of this machine, and the attached workers of other hosts. Keeps warm spares
// on each device, leases one to each rank of a job, ends workers that hang, and reports a worker as
// gone only when its process has ended and its stream is drained, so that its last report is not
// lost. A worker keeps its job for a while when its stream breaks or the daemon restarts, and may
// reattach. A worker of another host is started and ended by that host. It is gone when its stream
// is drained and it has not reattached in time; by then it has stopped (config/job/worker_lease.h).
// WorkerTable decides under the lock; processes, logs, streams and events are handled after its
// release (`Apply`). Owner: the daemon. Thread-safe. Its own thread starts, watches and ends
// processes. Failure: a failed start is retried after growing pauses (1 s to 30 s), and problem()
// returns meanwhile why the daemon is not ready.
class WorkerPool final : public Workers {
 public:
  struct Options : WorkerTable::Options {
    std::string address;  // "unix:/..." of WorkerService.
    std::string log_dir;  // See WorkerLogs.
    int threads = 1;      // Compute threads per worker; the slots share the cores.
  };
  using Counts = WorkerCounts;

  explicit WorkerPool(Options options);
  ~WorkerPool() override;

  // Must be called before Start. An adopted worker has workers.reattach_timeout_seconds to dial.
  bool Adopt(const training::v1::WorkerProcessRef& worker, const std::string& job_id, int rank,
             int64_t claim, int64_t acknowledged, int64_t memory_bytes) override;
  // Must be called before a worker can dial: a worker that survived a restart dials as
  // soon as the socket exists.
  void SetEvents(WorkerEvents* events) { events_ = events; }
  void Start();
  // Ends every worker (SIGTERM, SIGKILL after `grace`) and the thread. Idempotent.
  void Stop(absl::Duration grace);
  // Starts no more workers and dismisses warm ones.
  void Drain();

  std::vector<WorkerLease> ReserveGang(int ranks, int64_t memory_bytes) override;
  void Release(const std::string& worker_id) override;
  void OpenReservation(const std::string& name) override;
  void CloseReservation(const std::string& name) override;
  std::vector<WorkerLease> ReserveSubmitted(const std::string& name, int ranks) override;
  int WarmOf(const std::string& name) const override;
  void Begin(const std::string& worker_id, const training::v1::StartJob& start) override;
  void Send(const std::string& job_id, const training::v1::AttachResponse& command) override;
  // Sends the request to rank 0 of the job, now and whenever a worker gets the job or reattaches,
  // until the next request.
  void RequestWeights(const std::string& job_id, const training::v1::PublishWeights& request);
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
  // Returns why no job can run, for the readiness check; empty if one can.
  std::string problem() const;
  // Returns problems that do not stop the pool, such as one device of several in quarantine.
  std::vector<std::string> notes() const;

  // Called by WorkerService. Returns an error for a worker that the pool does not expect, or
  // that comes over the network (`remote`) without permission. `peer` is the network address of
  // a worker of another host.
  absl::Status Attach(const training::v1::AttachRequest& hello, bool remote,
                      std::shared_ptr<WorkerLink> link, const std::string& peer = "");
  void OnMessage(const std::string& worker_id, const training::v1::AttachRequest& message);
  // Returns true while the worker holds a job that has not ended.
  bool HoldsJob(const std::string& worker_id) const;
  void OnDetached(const std::string& worker_id, const WorkerLink* link);

 private:
  // Keyed by worker ID.
  using Processes = std::map<std::string, std::shared_ptr<const WorkerProcess>>;

  // The thread's loop and the steps of each of its rounds.
  void Loop();
  void ReapEnded();
  void SpawnMissing();
  bool Spawn(const SpawnWorker& spawn);
  void TrimLogs();
  void WaitForNews();
  void Wake() const;
  void SendWeightsRequest(const std::string& job_id);

  // Runs `change` on the table under the lock, and performs the required actions after its release.
  // `change(table)` returns the actions. `change(table, actions)` adds them to its second argument
  // and returns a value, which Apply returns.
  template <typename Change>
  auto Apply(const Change& change) ABSL_LOCKS_EXCLUDED(mutex_) {
    if constexpr (std::is_invocable_v<const Change&, WorkerTable&>) {
      Perform(Locked(change));
    } else {
      WorkerActions actions;
      auto value = Locked([&](WorkerTable& table) { return change(table, actions); });
      Perform(actions);
      return value;
    }
  }
  // Runs `change` on the table under the lock. Returns its result; no action is required.
  template <typename Change>
  auto Locked(const Change& change) ABSL_LOCKS_EXCLUDED(mutex_) {
    absl::MutexLock lock(&mutex_);
    return change(table_);
  }
  // Returns what `query`, a method of the table, returns under the lock.
  template <typename Query, typename... Args>
  auto Read(Query query, const Args&... args) const ABSL_LOCKS_EXCLUDED(mutex_) {
    absl::MutexLock lock(&mutex_);
    return (table_.*query)(args...);
  }
  // Performs the table's decisions, without the lock, because a stream, a disk
  // or an observer may be slow.
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
  absl::Time next_trim_ = absl::InfinitePast();  // Used by the thread only.
  WorkerEvents* events_ = nullptr;
  int wake_fd_;
  std::thread thread_;

  mutable absl::Mutex mutex_;
  WorkerTable table_ ABSL_GUARDED_BY(mutex_);
  int64_t weights_request_ ABSL_GUARDED_BY(mutex_) = 0;
  // Requests for weights, keyed by job ID. None is empty.
  std::map<std::string, training::v1::PublishWeights> weights_requests_ ABSL_GUARDED_BY(mutex_);
  // Processes that are not reaped yet, keyed by worker ID.
  Processes processes_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace genesis
