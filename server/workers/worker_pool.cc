// The calls of others. The pool's thread is in worker_pool_thread.cc.
#include "server/workers/worker_pool.h"

#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/steady_time.h"
#include "base/timestamp.h"
#include "config/job/worker_lease.h"
#include "spdlog/spdlog.h"

namespace genesis {
namespace {

using training::v1::AttachRequest;
using training::v1::AttachResponse;

// A worker without a job that closed its stream has nothing left to do.
constexpr absl::Duration kIdleExit = absl::Seconds(30);
// For a worker that dials again, once a second at most, when the daemon is back only to drain.
constexpr absl::Duration kReturnGrace = absl::Seconds(5);

}  // namespace

WorkerPool::WorkerPool(Options options)
    : options_(std::move(options)),
      logs_(options_.log_dir),
      wake_fd_(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)),
      devices_(options_.devices) {}

WorkerPool::~WorkerPool() {
  Stop(absl::ZeroDuration());
  close(wake_fd_);
}

bool WorkerPool::Adopt(const training::v1::WorkerProcessRef& ref, const std::string& job_id,
                       int64_t claim, int64_t acknowledged, int64_t memory_bytes) {
  const bool remote = ref.start_ticks() == 0;
  if (remote && !options_.remote.has_value()) return false;
  std::optional<WorkerProcess> process;
  if (!remote) {
    absl::StatusOr<WorkerProcess> found = WorkerProcess::Adopt(ref.pid(), ref.start_ticks());
    if (!found.ok()) return false;
    const std::vector<std::string>& names = options_.devices.names;
    if (std::find(names.begin(), names.end(), ref.device()) == names.end()) {
      found->Signal(SIGTERM);
      return false;
    }
    process.emplace(*std::move(found));
  }
  absl::MutexLock lock(&mutex_);
  Worker& worker = remote ? AddRemote(ref.worker_id(), ref.pid(), ref.device())
                          : Add(ref.worker_id(), *std::move(process));
  worker.device_name = ref.device();
  worker.was_attached = true;
  worker.adopted = true;
  worker.progress.Begin(SteadyNow());
  worker.progress.Pause();
  worker.job_id = job_id;
  worker.claim = claim;
  worker.acknowledged = acknowledged;
  worker.back_by = SteadyNow() + options_.reattach_timeout;
  worker.absence = "it did not attach again after the daemon was restarted";
  Take(worker, memory_bytes);
  return true;
}

void WorkerPool::Start(WorkerEvents* events) {
  events_ = events;
  thread_ = std::thread([this] { Loop(); });
}

void WorkerPool::Stop(absl::Duration grace) {
  {
    absl::MutexLock lock(&mutex_);
    stopping_ = true;
    for (auto& [id, worker] : workers_) {
      Signal(worker, SIGTERM);
      worker.terminated = true;
      worker.end_at = std::min(worker.end_at, SteadyNow() + grace);
    }
  }
  Wake();
  if (thread_.joinable()) thread_.join();
}

void WorkerPool::Drain() {
  absl::MutexLock lock(&mutex_);
  draining_ = true;
  for (auto& [id, worker] : workers_) {
    if (!worker.leased && worker.link) worker.link->Close();
    // It cannot be told to stop, and one that hangs will not come back.
    const absl::Time back_by = SteadyNow() + kReturnGrace;
    if (worker.leased && !worker.link && back_by < worker.back_by) {
      worker.back_by = back_by;
      worker.absence = "the daemon drains, and it did not attach again";
    }
  }
}

void WorkerPool::Take(Worker& worker, int64_t memory_bytes) {
  DeviceTable::Device& device = devices_.Get(worker.device_name);
  worker.leased = true;
  worker.memory_bytes = memory_bytes;
  ++device.busy;
  device.reserved_bytes += memory_bytes;
}

void WorkerPool::GiveBack(Worker& worker) {
  if (!worker.leased) return;
  DeviceTable::Device& device = devices_.Get(worker.device_name);
  worker.leased = false;
  --device.busy;
  device.reserved_bytes -= worker.memory_bytes;
}

std::optional<WorkerPool::Lease> WorkerPool::Reserve(int64_t memory_bytes) {
  absl::MutexLock lock(&mutex_);
  if (draining_ || stopping_) return std::nullopt;
  for (auto& [id, worker] : workers_) {
    if (worker.link == nullptr || worker.leased || worker.retiring || worker.exit) continue;
    if (!devices_.HasRoom(devices_.Get(worker.device_name), memory_bytes, SteadyNow())) continue;
    Take(worker, memory_bytes);
    Lease lease;
    lease.device = worker.device;
    lease.worker.set_worker_id(id);
    lease.worker.set_pid(worker.pid);
    if (worker.process) lease.worker.set_start_ticks(worker.process->start_ticks());
    lease.worker.set_device(worker.device_name);
    return lease;
  }
  return std::nullopt;
}

void WorkerPool::Release(const std::string& worker_id) {
  absl::MutexLock lock(&mutex_);
  const auto found = workers_.find(worker_id);
  if (found != workers_.end()) GiveBack(found->second);
  Wake();
}

void WorkerPool::Begin(const std::string& worker_id, const training::v1::StartJob& start) {
  absl::MutexLock lock(&mutex_);
  const auto found = workers_.find(worker_id);
  if (found == workers_.end()) return;
  Worker& worker = found->second;
  worker.job_id = start.job_id();
  worker.claim = start.claim();
  worker.progress.Begin(SteadyNow());
  AttachResponse command;
  *command.mutable_start_job() = start;
  command.mutable_start_job()->set_patience_seconds(
      worker.process ? kLocalPatienceSeconds
                     : RemotePatienceSeconds(
                           static_cast<int>(absl::ToInt64Seconds(options_.reattach_timeout))));
  // Without a link the worker has just died; its burial tells of the job.
  if (worker.link) worker.link->Send(command);
  Wake();  // A spare is missing now.
}

void WorkerPool::Send(const std::string& job_id, const AttachResponse& command) {
  absl::MutexLock lock(&mutex_);
  Worker* worker = FindByJob(job_id);
  if (worker != nullptr && worker->link) worker->link->Send(command);
}

void WorkerPool::Acknowledge(const std::string& job_id, int64_t sequence) {
  absl::MutexLock lock(&mutex_);
  Worker* worker = FindByJob(job_id);
  if (worker == nullptr) return;
  worker->acknowledged = sequence;
  AttachResponse command;
  command.mutable_acknowledged()->set_sequence(sequence);
  if (worker->link) worker->link->Send(command);
}

void WorkerPool::ExpectExit(const std::string& job_id, absl::Duration grace,
                            const std::string& why) {
  {
    absl::MutexLock lock(&mutex_);
    Worker* worker = FindByJob(job_id);
    if (worker == nullptr || worker->exit) return;
    const absl::Time end_at = SteadyNow() + grace;
    if (grace == absl::ZeroDuration()) worker->terminated = true;
    if (end_at >= worker->end_at) return;
    worker->end_at = end_at;
    worker->end_reason = why;
  }
  Wake();
}

absl::StatusOr<std::string> WorkerPool::Retire(const std::string& worker_id) {
  absl::MutexLock lock(&mutex_);
  const auto found = workers_.find(worker_id);
  if (found == workers_.end()) {
    return absl::NotFoundError(
        absl::StrCat("there is no worker \"", worker_id, "\"; `genesisctl workers` lists them"));
  }
  Worker& worker = found->second;
  worker.retiring = true;
  if (!worker.leased && worker.link) worker.link->Close();
  return worker.job_id;
}

WorkerPool::Worker* WorkerPool::FindByJob(const std::string& job_id) {
  for (auto& [id, worker] : workers_) {
    if (worker.leased && worker.job_id == job_id) return &worker;
  }
  return nullptr;
}

WorkerPool::Counts WorkerPool::Count(const std::string& device) const {
  Counts counts;
  for (const auto& [id, worker] : workers_) {
    if (!device.empty() && worker.device_name != device) continue;
    if (worker.leased) {
      ++counts.busy;
    } else if (worker.exit || worker.retiring) {
      continue;
    } else if (worker.link) {
      ++counts.warm;
    } else if (!worker.was_attached) {
      ++counts.starting;
    }
  }
  return counts;
}

WorkerPool::Counts WorkerPool::counts() const {
  absl::MutexLock lock(&mutex_);
  return Count("");
}

int WorkerPool::slots() const {
  absl::MutexLock lock(&mutex_);
  return devices_.slots();
}

training::v1::WorkerInfo WorkerPool::InfoOf(const std::string& id, const Worker& worker) const {
  training::v1::WorkerInfo info;
  info.set_id(id);
  info.set_pid(worker.pid);
  info.set_device(worker.device_name);
  info.set_job_id(worker.job_id);
  *info.mutable_start_time() = ToTimestamp(worker.start);
  info.set_draining(worker.retiring);
  if (worker.exit || (worker.was_attached && !worker.link && !worker.leased)) {
    info.set_state(training::v1::WORKER_STATE_ENDING);
  } else if (worker.leased) {
    info.set_state(training::v1::WORKER_STATE_BUSY);
  } else {
    info.set_state(worker.link ? training::v1::WORKER_STATE_WARM
                               : training::v1::WORKER_STATE_STARTING);
  }
  return info;
}

std::vector<training::v1::WorkerInfo> WorkerPool::workers() const {
  std::vector<training::v1::WorkerInfo> infos;
  absl::MutexLock lock(&mutex_);
  for (const auto& [id, worker] : workers_) infos.push_back(InfoOf(id, worker));
  std::stable_sort(infos.begin(), infos.end(), [](const auto& a, const auto& b) {
    return SecondsBetween(a.start_time(), b.start_time()) > 0;
  });
  return infos;
}

std::vector<training::v1::DeviceStatus> WorkerPool::devices() const {
  std::vector<training::v1::DeviceStatus> statuses;
  absl::MutexLock lock(&mutex_);
  for (const DeviceTable::Device& device : devices_.devices()) {
    statuses.push_back(devices_.StatusOf(device, SteadyNow()));
  }
  return statuses;
}

int64_t WorkerPool::largest_device_bytes() const {
  absl::MutexLock lock(&mutex_);
  int64_t largest = 0;
  for (const DeviceTable::Device& device : devices_.devices()) {
    largest = std::max(largest, device.memory_bytes);
  }
  return largest;
}

std::string WorkerPool::problem() const {
  absl::MutexLock lock(&mutex_);
  if (!start_problem_.empty()) return start_problem_;
  for (const DeviceTable::Device& device : devices_.devices()) {
    if (!devices_.IsQuarantined(device, SteadyNow())) return "";
  }
  // Not ready would keep away the workers that are missing, where they come by a load balancer.
  if (devices_.devices().empty()) return "";
  const DeviceTable::Device& first = devices_.devices().front();
  return absl::StrCat("every device is quarantined; ", first.name, ": ",
                      devices_.StatusOf(first, SteadyNow()).reason());
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
                                std::shared_ptr<WorkerLink> link) {
  std::function<void()> tell = [this] { events_->OnCapacity(); };
  {
    absl::MutexLock lock(&mutex_);
    absl::StatusOr<Worker*> welcome = Welcome(request, remote);
    if (!welcome.ok()) return welcome.status();
    Worker& worker = **welcome;
    if (worker.link) worker.link->Close();
    worker.was_attached = true;
    worker.adopted = false;
    worker.device = request.hello().device();
    // A worker sees one CUDA device, which it calls cuda:0.
    if (remote || worker.device.cuda()) worker.device.set_name(worker.device_name);
    devices_.Get(worker.device_name).memory_bytes = worker.device.memory_bytes();
    worker.link = std::move(link);
    worker.back_by = absl::InfiniteFuture();
    if (worker.job_id.empty()) worker.end_at = absl::InfiniteFuture();  // It is no longer starting.
    start_failures_ = 0;
    start_problem_.clear();
    if (!worker.job_id.empty()) {
      spdlog::info("worker {} is back with job {}", request.hello().worker_id(), worker.job_id);
      AttachResponse acknowledged;
      acknowledged.mutable_acknowledged()->set_sequence(worker.acknowledged);
      worker.link->Send(acknowledged);
      worker.progress.Resume(SteadyNow());
      tell = [this, job_id = worker.job_id, claim = worker.claim] {
        events_->OnWorkerBack(job_id, claim);
      };
    } else if (draining_ || stopping_ || worker.retiring) {
      worker.link->Close();
    }
  }
  tell();
  return absl::OkStatus();
}

void WorkerPool::NoteEndOfJob(Worker& worker, const training::v1::Finished& finished) {
  worker.said_end = true;
  DeviceTable::Device& device = devices_.Get(worker.device_name);
  if (finished.outcome() == training::v1::Finished::OUTCOME_COMPLETED) {
    devices_.NoteSuccess(device);
  } else if (finished.failure().cause() == training::v1::FAILURE_CAUSE_DEVICE &&
             devices_.NoteFailure(device, finished.failure().message(), SteadyNow())) {
    spdlog::error("device {} is quarantined: {}", device.name,
                  devices_.StatusOf(device, SteadyNow()).reason());
  }
}

void WorkerPool::OnMessage(const std::string& worker_id, const AttachRequest& message) {
  {
    absl::MutexLock lock(&mutex_);
    const auto found = workers_.find(worker_id);
    if (found == workers_.end()) return;
    Worker& worker = found->second;
    if (message.job_id() != worker.job_id || message.claim() != worker.claim) {
      spdlog::warn("worker {} reports on job {} claim {}, but holds job {} claim {}; refused",
                   worker_id, message.job_id(), message.claim(), worker.job_id, worker.claim);
      return;
    }
    worker.progress.OnEvent(message, SteadyNow());
    if (message.has_finished()) NoteEndOfJob(worker, message.finished());
  }
  events_->OnWorkerEvent(message);
}

bool WorkerPool::HoldsJob(const std::string& worker_id) const {
  absl::MutexLock lock(&mutex_);
  const auto found = workers_.find(worker_id);
  return found != workers_.end() && found->second.holds_job();
}

void WorkerPool::OnDetached(const std::string& worker_id, const WorkerLink* link) {
  {
    absl::MutexLock lock(&mutex_);
    const auto found = workers_.find(worker_id);
    // A worker that is back already has another link.
    if (found == workers_.end() || found->second.link.get() != link) return;
    Worker& worker = found->second;
    worker.link.reset();
    worker.progress.Pause();
    const bool holds = worker.holds_job();
    // Nobody here sees the end of its process.
    if (!holds && !worker.process) worker.exit = ProcessExit{.known = false};
    worker.back_by = SteadyNow() + (holds ? options_.reattach_timeout : kIdleExit);
    worker.absence = holds ? "its stream broke and it did not attach again"
                           : "it closed its stream and did not exit";
  }
  Wake();
}

void WorkerPool::Wake() const {
  const uint64_t one = 1;
  // Fails only when the counter is full, and then the thread is awake.
  [[maybe_unused]] const ssize_t written = write(wake_fd_, &one, sizeof(one));
}

}  // namespace genesis
