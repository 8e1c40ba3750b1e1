// The public methods and worker reports. Work that depends on time is in worker_table_time.cc.
#include "server/workers/worker_table.h"

#include <algorithm>
#include <csignal>
#include <cstdlib>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/timestamp.h"
#include "config/job/worker_lease.h"
#include "server/workers/worker_admission.h"
#include "server/workers/worker_endings.h"
#include "spdlog/spdlog.h"

namespace genesis {
namespace {

using training::v1::AttachRequest;
using training::v1::AttachResponse;

// Time to exit for a worker that closed its stream while it held no job.
constexpr absl::Duration kIdleExit = absl::Seconds(30);
// Time for absent workers to reattach once the daemon drains. They retry about every second.
constexpr absl::Duration kReturnGrace = absl::Seconds(5);

WorkerSettings WithoutDevices(WorkerSettings settings) {
  settings.devices.clear();
  return settings;
}

}  // namespace

WorkerTable::WorkerTable(Options options, std::string id_prefix, const Clock& clock)
    : options_(std::move(options)),
      id_prefix_(std::move(id_prefix)),
      clock_(clock),
      devices_(options_.workers),
      reserved_devices_(WithoutDevices(options_.workers)) {}

void WorkerTable::Move(const std::string& id, Worker& worker, WorkerPhase to) {
  if (!IsLegalMove(worker.phase, to)) {
    spdlog::critical("defect: worker {} cannot move from {} to {}", id,
                     WorkerPhaseName(worker.phase), WorkerPhaseName(to));
    std::abort();
  }
  const bool held = HoldsSlot(worker.phase);
  worker.phase = to;
  DeviceTable& devices = DevicesOf(worker);
  if (!held && HoldsSlot(to)) devices.Take(worker.device_name, worker.memory_bytes);
  if (held && !HoldsSlot(to)) devices.GiveBack(worker.device_name, worker.memory_bytes);
}

Worker& WorkerTable::Add(const std::string& id, const std::string& device, bool remote,
                         const std::string& reservation) {
  Worker& worker = workers_[id];
  worker.remote = remote;
  worker.reservation = reservation;
  if (remote) DevicesOf(worker).Join(device);
  worker.device_name = device;
  worker.start = clock_.Now();
  return worker;
}

void WorkerTable::Remove(const std::string& id) {
  const auto found = workers_.find(id);
  const Worker& worker = found->second;
  const std::string job_id = worker.job_id;
  DeviceTable& devices = DevicesOf(worker);
  if (HoldsSlot(worker.phase)) devices.GiveBack(worker.device_name, worker.memory_bytes);
  if (worker.remote) devices.Leave(worker.device_name);
  workers_.erase(found);
  const bool held = std::any_of(workers_.begin(), workers_.end(),
                                [&](const auto& each) { return each.second.job_id == job_id; });
  if (!held) stores_.Remove(job_id);
}

Worker* WorkerTable::Find(const std::string& worker_id) {
  const auto found = workers_.find(worker_id);
  return found == workers_.end() ? nullptr : &found->second;
}

Worker* WorkerTable::FindByJob(const std::string& job_id) {
  for (auto& [id, worker] : workers_) {
    if (HoldsSlot(worker.phase) && worker.job_id == job_id && worker.rank == 0) return &worker;
  }
  return nullptr;
}

void WorkerTable::Adopt(const training::v1::WorkerProcessRef& ref, const std::string& job_id,
                        int rank, int64_t claim, int64_t acknowledged, int64_t memory_bytes) {
  Worker& worker =
      Add(ref.worker_id(), ref.device(), /*remote=*/ref.start_ticks() == 0, ref.reservation());
  worker.phase = WorkerPhase::kAdopted;
  worker.pid = ref.pid();
  worker.start_ticks = ref.start_ticks();
  worker.progress.Begin(clock_.Running());
  worker.progress.Pause();
  worker.job_id = job_id;
  worker.rank = rank;
  worker.claim = claim;
  worker.memory_bytes = memory_bytes;
  worker.acknowledged = acknowledged;
  worker.back_by = clock_.Running() + absl::Seconds(options_.workers.reattach_timeout_seconds);
  worker.absence = "it did not attach again after the daemon was restarted";
  DevicesOf(worker).Take(worker.device_name, memory_bytes);
}

WorkerActions WorkerTable::Stop(absl::Duration grace) {
  WorkerActions actions;
  stopping_ = true;
  for (auto& [id, worker] : workers_) {
    SignalWorker(id, worker, SIGTERM, actions);
    worker.terminated = true;
    worker.end_at = std::min(worker.end_at, clock_.Running() + grace);
  }
  return actions;
}

WorkerActions WorkerTable::Drain() {
  WorkerActions actions;
  draining_ = true;
  const absl::Time back_by = clock_.Running() + kReturnGrace;
  for (auto& [id, worker] : workers_) {
    if (worker.phase == WorkerPhase::kWarm) {
      Move(id, worker, WorkerPhase::kLeaving);
      actions.emplace_back(CloseStream{worker.link});
    }
    // An absent worker cannot receive a stop, and a hung one will not reattach.
    if (HoldsSlot(worker.phase) && !worker.link && back_by < worker.back_by) {
      worker.back_by = back_by;
      worker.absence = "the daemon drains, and it did not attach again";
    }
  }
  return actions;
}

WorkerActions WorkerTable::Release(const std::string& worker_id) {
  WorkerActions actions;
  Worker* worker = Find(worker_id);
  if (worker == nullptr || worker->phase != WorkerPhase::kReserved) return actions;
  const bool stays = worker->link && !IsUnwanted(*worker);
  Move(worker_id, *worker, stays ? WorkerPhase::kWarm : WorkerPhase::kLeaving);
  if (!stays && worker->link) actions.emplace_back(CloseStream{worker->link});
  return actions;
}

WorkerActions WorkerTable::Begin(const std::string& worker_id,
                                 const training::v1::StartJob& start) {
  WorkerActions actions;
  Worker* worker = Find(worker_id);
  if (worker == nullptr) return actions;
  worker->job_id = start.job_id();
  worker->claim = start.claim();
  worker->rank = start.rank().rank();
  worker->progress.Begin(clock_.Running());
  // Without a link, the worker has just died. Its exit will report the end of the job.
  Move(worker_id, *worker, worker->link ? WorkerPhase::kBusy : WorkerPhase::kAbsent);
  if (!worker->link) return actions;
  SendCommand send{worker->link, {}};
  *send.command.mutable_start_job() = start;
  send.command.mutable_start_job()->set_patience_seconds(
      worker->remote ? RemotePatienceSeconds(options_.workers.reattach_timeout_seconds)
                     : kLocalPatienceSeconds);
  actions.emplace_back(std::move(send));
  return actions;
}

WorkerActions WorkerTable::Send(const std::string& job_id, const AttachResponse& command) {
  WorkerActions actions;
  const Worker* worker = FindByJob(job_id);
  if (worker != nullptr && worker->link) actions.emplace_back(SendCommand{worker->link, command});
  return actions;
}

WorkerActions WorkerTable::Acknowledge(const std::string& job_id, int64_t sequence) {
  Worker* worker = FindByJob(job_id);
  if (worker == nullptr) return {};
  worker->acknowledged = sequence;
  AttachResponse command;
  command.mutable_acknowledged()->set_sequence(sequence);
  return Send(job_id, command);
}

void WorkerTable::ExpectExit(const std::string& job_id, absl::Duration grace,
                             const std::string& why) {
  const absl::Time end_at = clock_.Running() + grace;
  for (auto& [id, worker] : workers_) {
    if (!HoldsSlot(worker.phase) || worker.job_id != job_id || worker.exit) continue;
    if (grace == absl::ZeroDuration()) worker.terminated = true;
    if (end_at >= worker.end_at) continue;
    worker.end_at = end_at;
    worker.end_reason = why;
  }
}

absl::StatusOr<std::string> WorkerTable::Retire(const std::string& worker_id,
                                                WorkerActions& actions) {
  Worker* worker = Find(worker_id);
  if (worker == nullptr) {
    return absl::NotFoundError(
        absl::StrCat("there is no worker \"", worker_id, "\"; `genesisctl workers` lists them"));
  }
  worker->retiring = true;
  if (worker->phase == WorkerPhase::kWarm) {
    Move(worker_id, *worker, WorkerPhase::kLeaving);
    actions.emplace_back(CloseStream{worker->link});
  }
  return worker->job_id;
}

absl::StatusOr<Worker*> WorkerTable::Welcome(const AttachRequest& request, bool remote,
                                             WorkerActions& actions) {
  const training::v1::Hello& hello = request.hello();
  Worker* worker = Find(hello.worker_id());
  if (worker == nullptr && remote && request.job_id().empty()) {
    const std::string& reservation = hello.remote().reservation();
    absl::Status fit = CheckRemote(hello, options_.remote);
    if (fit.ok() && !reservation.empty() && !reservations_.contains(reservation)) {
      fit = ReservationIsOver(reservation);
    }
    if (!fit.ok()) {
      actions.emplace_back(
          WriteLog{spdlog::level::warn,
                   absl::StrCat("a worker of another host is refused: ", fit.message())});
      return fit;
    }
    const std::string device = absl::StrCat(hello.remote().name(), "/", hello.device().name());
    actions.emplace_back(WriteLog{
        spdlog::level::info, absl::StrCat("worker ", hello.worker_id(), " attaches on ", device)});
    worker = &Add(hello.worker_id(), device, /*remote=*/true, reservation);
    worker->pid = hello.pid();
    worker->host = hello.remote().name();
    return worker;
  }
  const bool awaited = worker != nullptr && remote == worker->remote && !worker->exit &&
                       MayAttach(worker->phase) && request.job_id() == worker->job_id &&
                       request.claim() == worker->claim;
  if (!awaited) return NotAwaited(request);
  return worker;
}

absl::Status WorkerTable::Attach(const AttachRequest& request, bool remote,
                                 std::shared_ptr<WorkerLink> link, WorkerActions& actions,
                                 const std::string& peer) {
  const std::string& id = request.hello().worker_id();
  const absl::StatusOr<Worker*> welcome = Welcome(request, remote, actions);
  if (!welcome.ok()) return welcome.status();
  Worker& worker = **welcome;
  if (worker.link) actions.emplace_back(CloseStream{worker.link});
  worker.device = request.hello().device();
  // A worker sees only one CUDA device, as cuda:0, so use the daemon's name for the device.
  if (remote || worker.device.cuda()) worker.device.set_name(worker.device_name);
  DevicesOf(worker).Get(worker.device_name).memory_bytes = worker.device.memory_bytes();
  worker.link = std::move(link);
  worker.peer = peer;
  worker.back_by = absl::InfiniteFuture();
  backoff_.NoteSuccess();
  if (!HoldsJob(worker.phase)) {
    worker.end_at = absl::InfiniteFuture();  // The limit on starting no longer applies.
    const bool unwanted = IsUnwanted(worker);
    Move(id, worker, unwanted ? WorkerPhase::kLeaving : WorkerPhase::kWarm);
    if (unwanted) actions.emplace_back(CloseStream{worker.link});
    actions.emplace_back(TellCapacity{});
    return absl::OkStatus();
  }
  // If the phase is kBusy already, an older stream has not ended yet.
  if (worker.phase != WorkerPhase::kBusy) Move(id, worker, WorkerPhase::kBusy);
  worker.progress.Resume(clock_.Running());
  actions.emplace_back(WriteLog{spdlog::level::info,
                                absl::StrCat("worker ", id, " is back with job ", worker.job_id)});
  SendCommand send{worker.link, {}};
  send.command.mutable_acknowledged()->set_sequence(worker.acknowledged);
  actions.emplace_back(std::move(send));
  if (worker.abandoned) actions.emplace_back(AbandonCommand(worker));
  if (worker.rank == 0) actions.emplace_back(TellBack{worker.job_id, worker.claim});
  return absl::OkStatus();
}

void WorkerTable::NoteEndOfJob(const std::string& id, Worker& worker,
                               const training::v1::Finished& finished, WorkerActions& actions) {
  Move(id, worker, WorkerPhase::kFinishing);
  // A cluster chooses the devices of its workers.
  if (!worker.reservation.empty()) return;
  DeviceTable::Device& device = devices_.Get(worker.device_name);
  const absl::Time now = clock_.Running();
  if (finished.outcome() == training::v1::Finished::OUTCOME_COMPLETED) {
    devices_.NoteSuccess(device);
  } else if (finished.failure().cause() == training::v1::FAILURE_CAUSE_DEVICE &&
             devices_.NoteFailure(device, finished.failure().message(), now)) {
    actions.emplace_back(
        WriteLog{spdlog::level::err, absl::StrCat("device ", device.name, " is quarantined: ",
                                                  devices_.StatusOf(device, now).reason())});
  }
}

std::optional<int> WorkerTable::OnMessage(const std::string& worker_id,
                                          const AttachRequest& message, WorkerActions& actions) {
  Worker* worker = Find(worker_id);
  if (worker == nullptr) return std::nullopt;
  if (message.job_id() != worker->job_id || message.claim() != worker->claim) {
    actions.emplace_back(
        WriteLog{spdlog::level::warn,
                 absl::StrCat("worker ", worker_id, " reports on job ", message.job_id(), " claim ",
                              message.claim(), ", but holds job ", worker->job_id, " claim ",
                              worker->claim, "; refused")});
    return std::nullopt;
  }
  worker->progress.OnEvent(message, clock_.Running());
  if (message.has_store_request()) {
    SendAnswers(
        workers_, worker->job_id,
        stores_.Handle(worker->job_id, worker->claim, worker->rank, message.store_request()),
        actions);
    return std::nullopt;
  }
  if (message.has_finished() && HoldsJob(worker->phase)) {
    NoteEndOfJob(worker_id, *worker, message.finished(), actions);
  }
  // Reports of ranks other than 0 need not be durable.
  if (worker->rank > 0 && message.sequence() != 0 && worker->link) {
    worker->acknowledged = std::max(worker->acknowledged, message.sequence());
    SendCommand acknowledge{worker->link, {}};
    acknowledge.command.mutable_acknowledged()->set_sequence(worker->acknowledged);
    actions.emplace_back(std::move(acknowledge));
  }
  return worker->rank;
}

void WorkerTable::OnDetached(const std::string& worker_id, const WorkerLink* link) {
  Worker* worker = Find(worker_id);
  // A worker that has already reattached has another link.
  if (worker == nullptr || worker->link.get() != link) return;
  worker->link.reset();
  worker->progress.Pause();
  stores_.Forget(worker->job_id, worker->rank);
  const bool holds = HoldsJob(worker->phase);
  // The end of a process on another host cannot be observed.
  if (!holds && worker->remote) worker->exit = ProcessExit{.known = false};
  worker->back_by = clock_.Running() +
                    (holds ? absl::Seconds(options_.workers.reattach_timeout_seconds) : kIdleExit);
  worker->absence = holds ? "its stream broke and it did not attach again"
                          : "it closed its stream and did not exit";
  if (holds) Move(worker_id, *worker, WorkerPhase::kAbsent);
  if (worker->phase == WorkerPhase::kWarm) Move(worker_id, *worker, WorkerPhase::kLeaving);
}

std::string WorkerTable::problem() const {
  return !backoff_.problem().empty() ? backoff_.problem() : devices_.Problem(clock_.Running());
}

std::optional<WorkerPhase> WorkerTable::PhaseOf(const std::string& worker_id) const {
  const auto found = workers_.find(worker_id);
  return found == workers_.end() ? std::nullopt : std::optional(found->second.phase);
}

}  // namespace genesis
