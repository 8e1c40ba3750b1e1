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
  WorkerActions actions;
  {
    absl::MutexLock lock(&mutex_);
    actions = table_.Stop(grace);
  }
  Perform(actions);
  Wake();
  if (thread_.joinable()) thread_.join();
}

void WorkerPool::Drain() {
  WorkerActions actions;
  {
    absl::MutexLock lock(&mutex_);
    actions = table_.Drain();
  }
  Perform(actions);
}

std::vector<WorkerLease> WorkerPool::ReserveGang(int ranks, int64_t memory_bytes) {
  std::vector<WorkerLease> leases;
  {
    absl::MutexLock lock(&mutex_);
    leases = table_.ReserveGang(ranks, memory_bytes);
  }
  if (leases.empty()) Wake();  // Workers may have to be started.
  return leases;
}

void WorkerPool::Release(const std::string& worker_id) {
  WorkerActions actions;
  {
    absl::MutexLock lock(&mutex_);
    actions = table_.Release(worker_id);
  }
  Perform(actions);
  Wake();
}

void WorkerPool::OpenReservation(const std::string& name) {
  absl::MutexLock lock(&mutex_);
  table_.OpenReservation(name);
}

void WorkerPool::CloseReservation(const std::string& name) {
  WorkerActions actions;
  {
    absl::MutexLock lock(&mutex_);
    actions = table_.CloseReservation(name);
  }
  Perform(actions);
}

std::vector<WorkerLease> WorkerPool::ReserveSubmitted(const std::string& name, int ranks) {
  absl::MutexLock lock(&mutex_);
  return table_.ReserveSubmitted(name, ranks);
}

int WorkerPool::WarmOf(const std::string& name) const {
  absl::MutexLock lock(&mutex_);
  return table_.WarmOf(name);
}

void WorkerPool::Begin(const std::string& worker_id, const training::v1::StartJob& start) {
  WorkerActions actions;
  {
    absl::MutexLock lock(&mutex_);
    actions = table_.Begin(worker_id, start);
  }
  Perform(actions);
  Wake();  // A spare may have to be started.
}

void WorkerPool::Send(const std::string& job_id, const AttachResponse& command) {
  WorkerActions actions;
  {
    absl::MutexLock lock(&mutex_);
    actions = table_.Send(job_id, command);
  }
  Perform(actions);
}

void WorkerPool::Acknowledge(const std::string& job_id, int64_t sequence) {
  WorkerActions actions;
  {
    absl::MutexLock lock(&mutex_);
    actions = table_.Acknowledge(job_id, sequence);
  }
  Perform(actions);
}

void WorkerPool::ExpectExit(const std::string& job_id, absl::Duration grace,
                            const std::string& why) {
  {
    absl::MutexLock lock(&mutex_);
    table_.ExpectExit(job_id, grace, why);
  }
  Wake();
}

void WorkerPool::Abandon(const std::string& job_id, const std::string& why) {
  WorkerActions actions;
  {
    absl::MutexLock lock(&mutex_);
    actions = table_.Abandon(job_id, why);
  }
  Perform(actions);
  Wake();
}

absl::StatusOr<std::string> WorkerPool::Retire(const std::string& worker_id) {
  WorkerActions actions;
  absl::StatusOr<std::string> job_id;
  {
    absl::MutexLock lock(&mutex_);
    job_id = table_.Retire(worker_id, actions);
  }
  Perform(actions);
  return job_id;
}

WorkerPool::Counts WorkerPool::counts() const {
  absl::MutexLock lock(&mutex_);
  return table_.counts();
}

int WorkerPool::slots() const {
  absl::MutexLock lock(&mutex_);
  return table_.slots();
}

int WorkerPool::free_slots() const {
  absl::MutexLock lock(&mutex_);
  return table_.free_slots();
}

std::vector<training::v1::WorkerInfo> WorkerPool::workers() const {
  absl::MutexLock lock(&mutex_);
  return table_.workers();
}

std::vector<training::v1::DeviceStatus> WorkerPool::devices() const {
  absl::MutexLock lock(&mutex_);
  return table_.devices();
}

int64_t WorkerPool::largest_device_bytes() const {
  absl::MutexLock lock(&mutex_);
  return table_.largest_device_bytes();
}

std::string WorkerPool::problem() const {
  absl::MutexLock lock(&mutex_);
  return table_.problem();
}

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
  WorkerActions actions;
  absl::Status attached;
  {
    absl::MutexLock lock(&mutex_);
    attached = table_.Attach(request, remote, std::move(link), actions, peer);
  }
  Perform(actions);
  return attached;
}

void WorkerPool::OnMessage(const std::string& worker_id, const AttachRequest& message) {
  WorkerActions actions;
  std::optional<int> rank;
  {
    absl::MutexLock lock(&mutex_);
    rank = table_.OnMessage(worker_id, message, actions);
  }
  Perform(actions);
  if (rank.has_value()) events_->OnWorkerEvent(message, *rank);
}

bool WorkerPool::HoldsJob(const std::string& worker_id) const {
  absl::MutexLock lock(&mutex_);
  const std::optional<WorkerPhase> phase = table_.PhaseOf(worker_id);
  return phase.has_value() && genesis::HoldsJob(*phase);
}

void WorkerPool::OnDetached(const std::string& worker_id, const WorkerLink* link) {
  {
    absl::MutexLock lock(&mutex_);
    table_.OnDetached(worker_id, link);
  }
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
    WorkerActions actions;
    const std::string problem =
        absl::StrCat("worker ", exit.worker_id, " ", DescribeExit(exit.exit), " before it was warm",
                     exit.log_tail.empty() ? "" : ": " + exit.log_tail.back());
    {
      absl::MutexLock lock(&mutex_);
      actions = table_.NoteStartFailure(problem);
    }
    Perform(actions);
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
