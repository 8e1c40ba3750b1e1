// How workers come into the pool, from this machine and from others.
#include <algorithm>
#include <csignal>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "base/field_error.h"
#include "base/version.h"
#include "server/workers/worker_pool.h"
#include "spdlog/spdlog.h"

namespace genesis {
namespace {

using training::v1::AttachRequest;

constexpr size_t kMaxHostName = 253;  // RFC 1035.
constexpr size_t kMaxId = 300;

bool IsName(const std::string& text, size_t most) {
  return !text.empty() && text.size() <= most && std::all_of(text.begin(), text.end(), [](char c) {
    return absl::ascii_isalnum(static_cast<unsigned char>(c)) || c == '.' || c == '_' || c == '-';
  });
}

absl::Status NotAwaited(const AttachRequest& request) {
  return absl::PermissionDeniedError(
      absl::StrCat("worker id \"", request.hello().worker_id(),
                   "\" is not one this daemon has started and awaits",
                   request.job_id().empty()
                       ? ""
                       : absl::StrCat(" with job ", request.job_id(), " claim ", request.claim())));
}

std::string Describe(const training::v1::SharedFolder& folder) {
  return absl::StrCat(folder.path(), folder.id().empty() ? " without its file .genesis-folder"
                                                         : absl::StrCat(" (", folder.id(), ")"));
}

// Whether a worker of another host that holds no job may have one.
absl::Status CheckRemote(const training::v1::Hello& hello,
                         const std::optional<training::v1::SharedFolder>& wanted) {
  const training::v1::RemoteHost& host = hello.remote();
  if (!wanted.has_value()) {
    return absl::FailedPreconditionError(
        "this daemon takes no workers of other hosts; set workers.remote: true, and restart it");
  }
  if (!IsName(host.name(), kMaxHostName) || !IsName(hello.worker_id(), kMaxId)) {
    return absl::InvalidArgumentError(absl::StrCat(
        "host ", QuoteValue(host.name()), " with worker id ", QuoteValue(hello.worker_id()),
        "; accepted: letters, digits, '.', '_' and '-', at most ", kMaxHostName, " and ", kMaxId));
  }
  if (hello.version() != kVersion) {
    return absl::FailedPreconditionError(
        absl::StrCat("the worker is of version ", QuoteValue(hello.version()), "; this daemon is ",
                     kVersion, ": install the same on both hosts"));
  }
  if (host.checkpoints().path() != wanted->path() || host.checkpoints().id() != wanted->id()) {
    return absl::FailedPreconditionError(absl::StrCat(
        "the worker on ", host.name(), " sees the checkpoint folder ", Describe(host.checkpoints()),
        "; this daemon's is ", Describe(*wanted),
        ": mount the same file system there at the same path, and give it to the worker as "
        "--checkpoint-dir"));
  }
  return absl::OkStatus();
}

}  // namespace

WorkerPool::Worker& WorkerPool::Add(const std::string& id, WorkerProcess process) {
  const pid_t pid = process.pid();
  Worker& worker = workers_.emplace(id, std::move(process)).first->second;
  worker.pid = pid;
  return worker;
}

WorkerPool::Worker& WorkerPool::AddRemote(const std::string& id, int32_t pid,
                                          const std::string& device) {
  devices_.Join(device);
  Worker& worker = workers_.emplace(id, std::nullopt).first->second;
  worker.pid = pid;
  worker.device_name = device;
  return worker;
}

absl::StatusOr<WorkerPool::Worker*> WorkerPool::Welcome(const AttachRequest& request, bool remote) {
  const training::v1::Hello& hello = request.hello();
  const auto found = workers_.find(hello.worker_id());
  if (found == workers_.end() && remote && request.job_id().empty()) {
    const absl::Status fit = CheckRemote(hello, options_.remote);
    if (!fit.ok()) {
      spdlog::warn("a worker of another host is refused: {}", std::string(fit.message()));
      return fit;
    }
    const std::string device = absl::StrCat(hello.remote().name(), "/", hello.device().name());
    spdlog::info("worker {} attaches on {}", hello.worker_id(), device);
    return &AddRemote(hello.worker_id(), hello.pid(), device);
  }
  if (found == workers_.end()) return NotAwaited(request);
  Worker& worker = found->second;
  const bool awaited = remote == !worker.process && !worker.said_end && !worker.exit &&
                       request.job_id() == worker.job_id && request.claim() == worker.claim &&
                       (!worker.was_attached || !worker.job_id.empty());
  if (!awaited) return NotAwaited(request);
  return &worker;
}

void WorkerPool::Signal(Worker& worker, int signal) {
  if (worker.process) {
    worker.process->Signal(signal);
    return;
  }
  if (signal == SIGTERM && worker.link && worker.holds_job()) {
    training::v1::AttachResponse stop;
    stop.mutable_stop_job()->set_checkpoint(true);
    worker.link->Send(stop);
    return;
  }
  // Its host ends it: a worker whose stream was closed by the daemon exits.
  worker.exit = ProcessExit{.known = false};
  if (worker.link) worker.link->Close();
}

}  // namespace genesis
