#include "server/workers/worker.h"

#include "base/timestamp.h"

namespace genesis {

training::v1::WorkerState ShownState(const Worker& worker) {
  if (HoldsSlot(worker.phase)) return training::v1::WORKER_STATE_BUSY;
  if (worker.exit || worker.phase == WorkerPhase::kLeaving) {
    return training::v1::WORKER_STATE_ENDING;
  }
  return worker.phase == WorkerPhase::kWarm ? training::v1::WORKER_STATE_WARM
                                            : training::v1::WORKER_STATE_STARTING;
}

bool IsSpare(const Worker& worker) {
  const training::v1::WorkerState shown = ShownState(worker);
  return !worker.retiring &&
         (shown == training::v1::WORKER_STATE_WARM || shown == training::v1::WORKER_STATE_STARTING);
}

training::v1::WorkerInfo InfoOf(const std::string& id, const Worker& worker) {
  training::v1::WorkerInfo info;
  info.set_id(id);
  info.set_pid(worker.pid);
  info.set_state(ShownState(worker));
  info.set_device(worker.device_name);
  info.set_job_id(worker.job_id);
  *info.mutable_start_time() = ToTimestamp(worker.start);
  info.set_draining(worker.retiring);
  info.set_reservation(worker.reservation);
  return info;
}

training::v1::WorkerProcessRef RefOf(const std::string& id, const Worker& worker) {
  training::v1::WorkerProcessRef ref;
  ref.set_worker_id(id);
  ref.set_pid(worker.pid);
  ref.set_start_ticks(worker.start_ticks);
  ref.set_device(worker.device_name);
  ref.set_reservation(worker.reservation);
  return ref;
}

}  // namespace genesis
