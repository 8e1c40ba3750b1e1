#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "base/clock.h"
#include "genesis/training/v1/operations.pb.h"
#include "genesis/training/v1/worker_service.pb.h"
#include "server/workers/device_table.h"
#include "server/workers/progress_watch.h"
#include "server/workers/rank_store.h"
#include "server/workers/start_backoff.h"
#include "server/workers/worker.h"
#include "server/workers/worker_actions.h"
#include "server/workers/worker_lists.h"
#include "server/workers/workers.h"

namespace genesis {

// A `WorkerTable` holds the workers, the devices with their slots, and all rules about them: which
// worker gets a job, how many spares are missing, who may attach, which workers hang or are overdue
// and get which signal, and when a worker is gone. It starts, signals and sends nothing itself, but
// returns the required actions in order.
//
// A worker of this machine is gone when its process has ended and its stream is drained. A worker
// of another host is gone when its stream is drained and, if it held a job, its time to reattach is
// over. Owner: WorkerPool, whose lock guards the table. Failure: a move missing from WorkerMoves()
// is logged and aborts the program.
//
class WorkerTable {
 public:
  struct Options {
    WorkerSettings workers;  // `devices` are the devices of this machine, by name.
    HangSettings hang;
    // If set, workers of other hosts may attach: the checkpoint folder that they must see.
    std::optional<training::v1::SharedFolder> remote;
  };

  // `id_prefix` is the prefix of the IDs of started workers.
  WorkerTable(Options options, std::string id_prefix, const Clock& clock);

  // Adds a worker that has held a job since before the daemon's restart, on a device of this
  // machine or of another host. It has workers.reattach_timeout_seconds to reconnect.
  void Adopt(const training::v1::WorkerProcessRef& ref, const std::string& job_id, int rank,
             int64_t claim, int64_t acknowledged, int64_t memory_bytes);
  // Ends every worker: SIGTERM now, SIGKILL after `grace`.
  WorkerActions Stop(absl::Duration grace);
  // Starts no more workers and dismisses warm ones.
  WorkerActions Drain();
  // Returns true when Stop was called and the last worker is removed.
  bool ended() const { return stopping_ && workers_.empty(); }

  // Adds a missing worker to the table and returns it to be started. It is added first because it
  // may attach before its pid is known. Either OnSpawned or OnSpawnFailed must follow.
  std::optional<SpawnWorker> NextSpawn();
  WorkerActions OnSpawned(const std::string& worker_id, int32_t pid, int64_t start_ticks);
  WorkerActions OnSpawnFailed(const std::string& worker_id, const std::string& problem);
  // Records a failed start, after which no worker is started for a while.
  WorkerActions NoteStartFailure(const std::string& problem);
  void OnExit(const std::string& worker_id, const ProcessExit& exit);
  // Handles workers that hang, are overdue or are gone.
  WorkerActions Tend();

  // Same as in Workers.
  std::vector<WorkerLease> ReserveGang(int ranks, int64_t memory_bytes);
  WorkerActions Release(const std::string& worker_id);
  void OpenReservation(const std::string& name) { reservations_.insert(name); }
  WorkerActions CloseReservation(const std::string& name);
  std::vector<WorkerLease> ReserveSubmitted(const std::string& name, int ranks);
  int WarmOf(const std::string& name) const {
    return static_cast<int>(Candidates(workers_, /*ranks=*/1, name).size());
  }
  WorkerActions Begin(const std::string& worker_id, const training::v1::StartJob& start);
  WorkerActions Send(const std::string& job_id, const training::v1::AttachResponse& command);
  WorkerActions Acknowledge(const std::string& job_id, int64_t sequence);
  void ExpectExit(const std::string& job_id, absl::Duration grace, const std::string& why);
  WorkerActions Abandon(const std::string& job_id, const std::string& why);
  absl::StatusOr<std::string> Retire(const std::string& worker_id, WorkerActions& actions);

  // Same as in WorkerPool. The actions must be performed
  // even if an error is returned.
  absl::Status Attach(const training::v1::AttachRequest& hello, bool remote,
                      std::shared_ptr<WorkerLink> link, WorkerActions& actions,
                      const std::string& peer = "");
  // Handles a message. Returns the worker's rank if its job must receive the message.
  std::optional<int> OnMessage(const std::string& worker_id,
                               const training::v1::AttachRequest& message, WorkerActions& actions);
  void OnDetached(const std::string& worker_id, const WorkerLink* link);

  WorkerCounts counts() const { return CountWorkers(workers_); }
  std::vector<training::v1::WorkerInfo> workers() const { return ListWorkers(workers_); }
  std::vector<training::v1::DeviceStatus> devices() const {
    return devices_.Statuses(clock_.Running());
  }
  std::string problem() const;
  int slots() const { return devices_.slots(); }
  int free_slots() const { return devices_.free_slots(clock_.Running()); }
  int64_t largest_device_bytes() const { return devices_.largest_bytes(); }
  std::set<std::string> ids() const { return IdsOf(workers_); }
  // Returns the worker's phase; nullopt if there is no such worker.
  std::optional<WorkerPhase> PhaseOf(const std::string& worker_id) const;

 private:
  // Changes a phase, which no other method does; updates slot and memory of the device.
  void Move(const std::string& id, Worker& worker, WorkerPhase to);
  Worker& Add(const std::string& id, const std::string& device, bool remote,
              const std::string& reservation = "");
  DeviceTable& DevicesOf(const Worker& worker) {
    return worker.reservation.empty() ? devices_ : reserved_devices_;
  }
  // Removes the worker from the table and releases its share of the device.
  void Remove(const std::string& id);
  Worker* Find(const std::string& worker_id);
  // Returns the worker that holds rank 0 of the job; null for none.
  Worker* FindByJob(const std::string& job_id);
  // Reserves the worker if its device has room.
  bool Keep(const std::string& id, int64_t memory_bytes);
  // Returns the worker that sent Hello, or an error if it may not attach.
  absl::StatusOr<Worker*> Welcome(const training::v1::AttachRequest& request, bool remote,
                                  WorkerActions& actions);
  // Returns true if the worker must get no job, whatever its phase.
  bool IsUnwanted(const Worker& worker) const {
    return draining_ || stopping_ || worker.retiring ||
           (!worker.reservation.empty() && !reservations_.contains(worker.reservation));
  }
  void NoteEndOfJob(const std::string& id, Worker& worker, const training::v1::Finished& finished,
                    WorkerActions& actions);
  void RemoveGone(WorkerActions& actions);

  const Options options_;
  const std::string id_prefix_;
  const Clock& clock_;
  DeviceTable devices_;
  // Devices of workers with a reservation, whose slots the daemon does not count.
  DeviceTable reserved_devices_;
  std::set<std::string> reservations_;  // Open reservations.
  std::map<std::string, Worker> workers_;
  StartBackoff backoff_;
  RankStores stores_;
  // Warm workers needed by the gang that found too few, and how long this need lasts.
  int wanted_ = 0;
  absl::Time wanted_until_ = absl::InfinitePast();
  int64_t next_id_ = 1;
  bool draining_ = false;
  bool stopping_ = false;
};

}  // namespace genesis
