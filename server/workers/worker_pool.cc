// The public methods. The pool's thread is in worker_pool_thread.cc.
#include "server/workers/worker_pool.h"

#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <utility>
#include <variant>

#include "absl/strings/str_cat.h"
#include "spdlog/spdlog.h"

namespace genesis {
namespace {

using training::v1::AttachRequest;
using training::v1::AttachResponse;

std::string DescribeExit(const ProcessExit& exit) {
  if (!exit.known) return "ended";
  return exit.signal != 0 ? absl::StrCat("ended by signal ", exit.signal)
                          : absl::StrCat("exited with ", exit.exit_code);
}

}  // namespace

WorkerPool::WorkerPool(Options options)
    : options_(std::move(options)),
      logs_(options_.log_dir),
      wake_fd_(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)),
      table_(options_, absl::StrCat("w", getpid(), "-"), Clock::System()) {}

WorkerPool::~WorkerPool() {
  Stop(absl::ZeroDuration());
  close(wake_fd_);
}

bool WorkerPool::Adopt(const training::v1::WorkerProcessRef& ref, const std::string& job_id,
                       int rank, int64_t claim, int64_t acknowledged, int64_t memory_bytes) {
  const bool remote = ref.start_ticks() == 0;
  if (remote && !options_.remote.has_value()) return false;
  std::shared_ptr<const WorkerProcess> process;
  if (!remote) {
    absl::StatusOr<WorkerProcess> found = WorkerProcess::Adopt(ref.pid(), ref.start_ticks());
    if (!found.ok()) return false;
    const std::vector<std::string>& names = options_.workers.devices;
    if (std::find(names.begin(), names.end(), ref.device()) == names.end()) {
      found->Signal(SIGTERM);
      return false;
    }
    process = std::make_shared<const WorkerProcess>(*std::move(found));
  }
  absl::MutexLock lock(&mutex_);
  table_.Adopt(ref, job_id, rank, claim, acknowledged, memory_bytes);
  if (process) processes_.emplace(ref.worker_id(), std::move(process));
  return true;
}

void WorkerPool::Start() {
  thread_ = std::thread([this] { Loop(); });
}

void WorkerPool::Stop(absl::Duration grace) {
  Apply([&](WorkerTable& table) { return table.Stop(grace); });
  Wake();
  if (thread_.joinable()) thread_.join();
}

void WorkerPool::Drain() {
  Apply([](WorkerTable& table) { return table.Drain(); });
}

std::vector<WorkerLease> WorkerPool::ReserveGang(int ranks, int64_t memory_bytes) {
  std::vector<WorkerLease> leases =
      Locked([&](WorkerTable& table) { return table.ReserveGang(ranks, memory_bytes); });
  if (leases.empty()) Wake();  // Workers may have to be started.
  return leases;
}

void WorkerPool::Release(const std::string& worker_id) {
  Apply([&](WorkerTable& table) { return table.Release(worker_id); });
  Wake();
}

void WorkerPool::OpenReservation(const std::string& name) {
  Locked([&](WorkerTable& table) { table.OpenReservation(name); });
}

void WorkerPool::CloseReservation(const std::string& name) {
  Apply([&](WorkerTable& table) { return table.CloseReservation(name); });
}

std::vector<WorkerLease> WorkerPool::ReserveSubmitted(const std::string& name, int ranks) {
  return Locked([&](WorkerTable& table) { return table.ReserveSubmitted(name, ranks); });
}

void WorkerPool::Begin(const std::string& worker_id, const training::v1::StartJob& start) {
  Apply([&](WorkerTable& table) { return table.Begin(worker_id, start); });
  if (start.rank().rank() == 0) SendWeightsRequest(start.job_id());
  Wake();  // A spare may have to be started.
}

void WorkerPool::Send(const std::string& job_id, const AttachResponse& command) {
  Apply([&](WorkerTable& table) { return table.Send(job_id, command); });
}

void WorkerPool::RequestWeights(const std::string& job_id,
                                const training::v1::PublishWeights& request) {
  AttachResponse command;
  *command.mutable_publish_weights() = request;
  {
    absl::MutexLock lock(&mutex_);
    command.mutable_publish_weights()->set_request(++weights_request_);
    if (request.wanted().empty()) {
      weights_requests_.erase(job_id);
    } else {
      weights_requests_[job_id] = command.publish_weights();
    }
  }
  Send(job_id, command);
}

void WorkerPool::SendWeightsRequest(const std::string& job_id) {
  AttachResponse command;
  {
    absl::MutexLock lock(&mutex_);
    const auto found = weights_requests_.find(job_id);
    if (found == weights_requests_.end()) return;
    *command.mutable_publish_weights() = found->second;
  }
  Send(job_id, command);
}

void WorkerPool::Acknowledge(const std::string& job_id, int64_t sequence) {
  Apply([&](WorkerTable& table) { return table.Acknowledge(job_id, sequence); });
}

void WorkerPool::ExpectExit(const std::string& job_id, absl::Duration grace,
                            const std::string& why) {
  Locked([&](WorkerTable& table) { table.ExpectExit(job_id, grace, why); });
  Wake();
}

void WorkerPool::Abandon(const std::string& job_id, const std::string& why) {
  Apply([&](WorkerTable& table) { return table.Abandon(job_id, why); });
  Wake();
}

absl::StatusOr<std::string> WorkerPool::Retire(const std::string& worker_id) {
  return Apply(
      [&](WorkerTable& table, WorkerActions& actions) { return table.Retire(worker_id, actions); });
}

int WorkerPool::WarmOf(const std::string& name) const { return Read(&WorkerTable::WarmOf, name); }

WorkerPool::Counts WorkerPool::counts() const { return Read(&WorkerTable::counts); }

int WorkerPool::slots() const { return Read(&WorkerTable::slots); }

int WorkerPool::free_slots() const { return Read(&WorkerTable::free_slots); }

std::vector<training::v1::WorkerInfo> WorkerPool::workers() const {
  return Read(&WorkerTable::workers);
}

std::vector<training::v1::DeviceStatus> WorkerPool::devices() const {
  return Read(&WorkerTable::devices);
}

int64_t WorkerPool::largest_device_bytes() const {
  return Read(&WorkerTable::largest_device_bytes);
}

std::string WorkerPool::problem() const { return Read(&WorkerTable::problem); }

std::vector<std::string> WorkerPool::notes() const {
  std::vector<std::string> notes;
  const std::vector<training::v1::DeviceStatus> devices = this->devices();
  if (devices.empty()) {
    notes.push_back(
        "no worker: workers.devices is none, and no worker of another host is attached; start "
        "genesis-worker there");
  }
  for (const training::v1::DeviceStatus& device : devices) {
    if (!device.quarantined()) continue;
    notes.push_back(absl::StrCat("device ", device.name(), " is quarantined: ", device.reason()));
  }
  return notes;
}

absl::Status WorkerPool::Attach(const AttachRequest& request, bool remote,
                                std::shared_ptr<WorkerLink> link, const std::string& peer) {
  absl::Status attached = Apply([&](WorkerTable& table, WorkerActions& actions) {
    return table.Attach(request, remote, std::move(link), actions, peer);
  });
  if (attached.ok()) SendWeightsRequest(request.job_id());
  return attached;
}

void WorkerPool::OnMessage(const std::string& worker_id, const AttachRequest& message) {
  const std::optional<int> rank = Apply([&](WorkerTable& table, WorkerActions& actions) {
    return table.OnMessage(worker_id, message, actions);
  });
  if (rank.has_value()) events_->OnWorkerEvent(message, *rank);
}

bool WorkerPool::HoldsJob(const std::string& worker_id) const {
  const std::optional<WorkerPhase> phase = Read(&WorkerTable::PhaseOf, worker_id);
  return phase.has_value() && genesis::HoldsJob(*phase);
}

void WorkerPool::OnDetached(const std::string& worker_id, const WorkerLink* link) {
  Locked([&](WorkerTable& table) { table.OnDetached(worker_id, link); });
  Wake();
}

void WorkerPool::Perform(const WorkerActions& actions) {
  for (const WorkerAction& action : actions) {
    std::visit([this](const auto& each) { Do(each); }, action);
  }
}

void WorkerPool::Do(const SendCommand& send) { send.link->Send(send.command); }

void WorkerPool::Do(const CloseStream& close) { close.link->Close(); }

void WorkerPool::Do(const SignalProcess& signal) {
  const Processes processes = RunningProcesses();
  const auto found = processes.find(signal.worker_id);
  if (found != processes.end()) found->second->Signal(signal.signal);
}

void WorkerPool::Do(const WriteLog& log) { spdlog::log(log.level, log.text); }

void WorkerPool::Do(const TellCapacity& /*capacity*/) { events_->OnCapacity(); }

void WorkerPool::Do(const TellBack& back) { events_->OnWorkerBack(back.job_id, back.claim); }

void WorkerPool::Do(const TellHung& hung) {
  events_->OnWorkerHung(hung.job_id, hung.claim, hung.rank, hung.what);
}

void WorkerPool::Do(const TellGone& gone) {
  WorkerExit exit = gone.exit;
  if (!gone.remote) exit.log_tail = logs_.Tail(exit.worker_id);
  if (gone.clean) logs_.Remove(exit.worker_id);
  if (gone.failed_to_start) {
    const std::string problem =
        absl::StrCat("worker ", exit.worker_id, " ", DescribeExit(exit.exit), " before it was warm",
                     exit.log_tail.empty() ? "" : ": " + exit.log_tail.back());
    Apply([&](WorkerTable& table) { return table.NoteStartFailure(problem); });
  } else if (gone.unexpected) {
    spdlog::warn("worker {} {}; its output is in {}", exit.worker_id, DescribeExit(exit.exit),
                 gone.remote ? "its host's journal" : logs_.PathOf(exit.worker_id));
  }
  if (!exit.job_id.empty()) events_->OnWorkerGone(exit);
  events_->OnCapacity();
}

WorkerPool::Processes WorkerPool::RunningProcesses() const {
  absl::MutexLock lock(&mutex_);
  return processes_;
}

void WorkerPool::Wake() const {
  const uint64_t one = 1;
  // The write fails only if the counter is full, and then the thread is already being woken.
  [[maybe_unused]] const ssize_t written = write(wake_fd_, &one, sizeof(one));
}

}  // namespace genesis
