#include "server/daemon.h"

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <thread>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "config/timestamp.h"
#include "config/version.h"
#include "server/logging.h"
#include "spdlog/spdlog.h"

namespace genesis {
namespace {

constexpr char kTrainingServiceName[] = "genesis.training.v1.TrainingService";
constexpr size_t kRecentJobs = 100;
// For workers that ignore the end of their stream, and for calls that are still open.
constexpr absl::Duration kStopGrace = absl::Seconds(2);

StartFailure Failure(ExitCode code, const absl::Status& status) {
  return {code, std::string(status.message())};
}

std::string WithPort(const std::string& address, int port) {
  return absl::StrCat(address.substr(0, address.rfind(':')), ":", port);
}

}  // namespace

Daemon::Daemon(LoadedSettings loaded)
    : loaded_(std::move(loaded)),
      settings_(loaded_.settings),
      start_time_(TimestampNow()),
      metrics_(settings_.deployment, kVersion) {}

Daemon::~Daemon() { StopAll(); }

std::optional<StartFailure> Daemon::Start() {
  for (auto step :
       {&Daemon::OpenData, &Daemon::StartHttp, &Daemon::StartJobs, &Daemon::StartTrainingService}) {
    std::optional<StartFailure> failure = (this->*step)();
    if (failure) return failure;
  }
  started_ = true;
  Tend();
  spdlog::info("genesisd {} serves gRPC on {} and HTTP on http://{}", kVersion, grpc_address_,
               http_address_);
  const std::string problem = WriteEndpoints();
  if (!problem.empty()) return StartFailure{ExitCode::kStoreFailure, problem};
  return std::nullopt;
}

std::optional<StartFailure> Daemon::OpenData() {
  absl::StatusOr<std::unique_ptr<DataDir>> dir = DataDir::Acquire(settings_.data_dir);
  if (!dir.ok()) {
    return Failure(
        absl::IsAlreadyExists(dir.status()) ? ExitCode::kDataDirInUse : ExitCode::kStoreFailure,
        dir.status());
  }
  data_dir_ = *std::move(dir);
  const absl::Status logging = InitLogging(settings_.log_file, settings_.log_level);
  if (!logging.ok()) return Failure(ExitCode::kStoreFailure, logging);
  LogGate();
  for (const std::string& each : {settings_.data_dir + "/run", settings_.data_dir + "/log/workers",
                                  settings_.datasets_root, settings_.checkpoints_dir}) {
    std::error_code error;
    std::filesystem::create_directories(each, error);
    if (error) {
      return StartFailure{ExitCode::kStoreFailure,
                          absl::StrCat("cannot create folder ", each, ": ", error.message())};
    }
  }
  absl::StatusOr<std::unique_ptr<JobStore>> store = JobStore::Open(settings_.data_dir);
  if (!store.ok()) return Failure(ExitCode::kStoreFailure, store.status());
  store_ = *std::move(store);
  return std::nullopt;
}

void Daemon::LogGate() const {
  for (const std::string& warning : loaded_.warnings) spdlog::warn("{}", warning);
  for (const std::string& error : settings_.gate.errors) spdlog::error("{}", error);
  spdlog::info("fp16_enabled: {} ({})", settings_.gate.enabled ? "True" : "False",
               settings_.gate.reason);
  if (!settings_.gate.enabled) spdlog::info("FP16 training disabled - using FP32");
}

std::optional<StartFailure> Daemon::StartHttp() {
  RouteSources sources;
  sources.readiness = [this] { return CheckReadiness(); };
  sources.stats = [this] {
    return started_ ? jobs_->Stats() : training::v1::StatsResponse::default_instance();
  };
  sources.info = [this] { return Info(); };
  sources.recent_jobs = [this] {
    return started_ ? RecentJobs() : std::vector<training::v1::Job>();
  };
  sources.metrics = [this] { return metrics_.RenderText(); };
  sources.on_response = [this](const std::string& path, int status) {
    metrics_.Request("http", path, absl::StrCat(status));
  };
  absl::StatusOr<std::unique_ptr<HttpServer>> http =
      HttpServer::Start(settings_.http_listen, MakeRoutes(std::move(sources)));
  if (!http.ok()) return Failure(ExitCode::kAddressInUse, http.status());
  http_ = *std::move(http);
  http_address_ = WithPort(settings_.http_listen, http_->port());
  return std::nullopt;
}

std::optional<StartFailure> Daemon::StartJobs() {
  const std::string address = absl::StrCat("unix:", settings_.data_dir, "/run/worker.sock");
  WorkerPool::Options workers;
  workers.program = settings_.worker_program;
  workers.address = address;
  workers.log_dir = settings_.data_dir + "/log/workers";
  workers.slots = settings_.worker_slots;
  workers.spares = settings_.worker_spares;
  workers.threads =
      std::max(1, static_cast<int>(std::thread::hardware_concurrency()) / settings_.worker_slots);
  workers.start_timeout = absl::Seconds(settings_.worker_start_timeout_s);
  pool_ = std::make_unique<WorkerPool>(std::move(workers));
  jobs_ = std::make_unique<JobManager>(
      JobManager::Options{settings_.datasets_root, settings_.checkpoints_dir,
                          settings_.queue_max_jobs, settings_.gate, settings_.cpu_fallback,
                          settings_.failure_watch, settings_.rehearsals_allowed,
                          settings_.loss_scale},
      store_.get(), pool_.get(), &metrics_);
  const absl::Status recovered = jobs_->Recover();
  if (!recovered.ok()) return Failure(ExitCode::kStoreFailure, recovered);
  worker_service_ = std::make_unique<WorkerServiceImpl>(pool_.get());
  absl::StatusOr<GrpcListener> listener = StartGrpcListener(address, worker_service_.get());
  if (!listener.ok()) return Failure(ExitCode::kAddressInUse, listener.status());
  worker_listener_ = *std::move(listener);
  jobs_->Start();
  pool_->Start(jobs_.get());
  return std::nullopt;
}

std::optional<StartFailure> Daemon::StartTrainingService() {
  datasets_ = std::make_unique<ReplayStore>(settings_.datasets_root);
  training_service_ = std::make_unique<TrainingServiceImpl>(jobs_.get(), datasets_.get(), &metrics_,
                                                            [this] { return Info(); });
  absl::StatusOr<GrpcListener> listener =
      StartGrpcListener(settings_.grpc_listen, training_service_.get());
  if (!listener.ok()) return Failure(ExitCode::kAddressInUse, listener.status());
  training_listener_ = *std::move(listener);
  grpc_address_ = WithPort(settings_.grpc_listen, training_listener_.port);
  return std::nullopt;
}

// For scripts that let the daemon pick its ports: <data_dir>/run/endpoints, written last.
std::string Daemon::WriteEndpoints() const {
  const std::string path = settings_.data_dir + "/run/endpoints";
  std::ofstream file(path + ".new");
  file << "grpc: " << grpc_address_ << "\nhttp: " << http_address_ << "\npid: " << getpid() << "\n";
  file.close();
  std::error_code error;
  if (file.good()) std::filesystem::rename(path + ".new", path, error);
  return file.good() && !error ? "" : absl::StrCat("cannot write ", path);
}

Readiness Daemon::CheckReadiness() const {
  Readiness readiness;
  if (!started_) readiness.reasons.push_back("the daemon is starting");
  if (draining_) readiness.reasons.push_back("the daemon is draining");
  if (started_) {
    const std::string workers = pool_->start_problem();
    if (!workers.empty()) readiness.reasons.push_back(workers);
    const absl::Status store = jobs_->store_status();
    if (!store.ok()) readiness.reasons.push_back(std::string(store.message()));
  }
  readiness.ready = readiness.reasons.empty();
  readiness.notes = settings_.gate.errors;
  return readiness;
}

training::v1::GetServerInfoResponse Daemon::Info() const {
  training::v1::GetServerInfoResponse info;
  info.set_version(kVersion);
  *info.mutable_start_time() = start_time_;
  info.set_ready(CheckReadiness().ready);
  info.set_reduced_precision_enabled(settings_.gate.enabled);
  info.set_reduced_precision_reason(settings_.gate.reason);
  info.set_data_dir(settings_.data_dir);
  info.set_deployment(settings_.deployment);
  return info;
}

std::vector<training::v1::Job> Daemon::RecentJobs() const {
  std::vector<training::v1::Job> jobs = jobs_->List();
  std::reverse(jobs.begin(), jobs.end());
  if (jobs.size() > kRecentJobs) jobs.resize(kRecentJobs);
  return jobs;
}

void Daemon::Tend() {
  const bool ready = CheckReadiness().ready;
  training_listener_.server->GetHealthCheckService()->SetServingStatus(kTrainingServiceName, ready);
  metrics_.SetReady(ready);
  metrics_.SetGate(settings_.gate.enabled, static_cast<int>(settings_.gate.errors.size()));
  const WorkerPool::Counts workers = pool_->counts();
  metrics_.SetWorkers(workers.busy, workers.warm, pool_->slots());
  // An assignment that a broken store refused is tried again.
  if (!jobs_->store_status().ok()) jobs_->OnCapacity();
}

bool Daemon::Drain() {
  spdlog::info("draining: no new jobs; running ones are checkpointed within {} s",
               settings_.drain_timeout_s);
  draining_ = true;
  Tend();
  jobs_->Drain();
  pool_->Drain();
  const absl::Time deadline = absl::Now() + absl::Seconds(settings_.drain_timeout_s);
  while (pool_->counts().busy > 0 && absl::Now() < deadline) absl::SleepFor(absl::Milliseconds(20));
  const bool clean = pool_->counts().busy == 0;
  if (!clean) spdlog::error("drain: {} jobs did not stop in time", pool_->counts().busy);
  StopAll();
  spdlog::info("genesisd ended {}", clean ? "cleanly" : "after ending workers by force");
  return clean;
}

// Workers first, so that their last reports still arrive; then the callers, who are answered by the
// writer; then the writer.
void Daemon::StopAll() {
  if (pool_) pool_->Stop(kStopGrace);
  const auto deadline = std::chrono::system_clock::now() + absl::ToChronoSeconds(kStopGrace);
  if (training_listener_.server) training_listener_.server->Shutdown(deadline);
  if (worker_listener_.server) worker_listener_.server->Shutdown(deadline);
  if (jobs_) jobs_->Stop();
  if (http_) http_->Stop();
}

}  // namespace genesis
