#include "server/daemon.h"

#include <algorithm>
#include <filesystem>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "base/files/durable_file.h"
#include "base/files/shared_folder.h"
#include "base/processors.h"
#include "base/running_time.h"
#include "base/timestamp.h"
#include "base/version.h"
#include "server/api/api_parts.h"
#include "server/base/guard.h"
#include "server/http/host_check.h"
#include "server/http/http_tls.h"
#include "server/ledger/job_state.h"
#include "server/logging.h"
#include "server/rest/api_error.h"
#include "server/store/store_reads.h"
#include "server/workers/find_devices.h"
#include "spdlog/spdlog.h"

namespace genesis {
namespace {

constexpr char kTrainingServiceName[] = "genesis.training.v1.TrainingService";
constexpr char kHealthServiceName[] = "grpc.health.v1.Health";
constexpr int64_t kRecentJobs = 100;
constexpr int64_t kRecentRows = 1000;
// Grace period between SIGTERM and SIGKILL of workers, and for open calls.
constexpr absl::Duration kStopGrace = absl::Seconds(2);

std::string WithPort(const std::string& address, int port) {
  return absl::StrCat(address.substr(0, address.rfind(':')), ":", port);
}

// Returns the state of the job for its curves; kOpen, which keeps them, if the store is unreadable.
CurveOwner CurveOwnerOf(const JobView& view, const std::string& id) {
  const auto job = view.Snapshot(id);
  if (!job.ok()) return CurveOwner::kOpen;
  if (*job == nullptr) return CurveOwner::kUnknown;
  return IsFinal((*job)->job.state()) ? CurveOwner::kEnded : CurveOwner::kOpen;
}

void LogPause(absl::Duration lost) {
  if (lost < absl::Seconds(1)) return;  // A busy machine is not an error.
  spdlog::warn(
      "genesisd did not run for {} (it was stopped, or its machine was suspended); workers and "
      "clusters get as much longer to report",
      absl::FormatDuration(absl::Trunc(lost, absl::Milliseconds(100))));
}

}  // namespace

Daemon::Daemon(LoadedSettings loaded)
    : heartbeat_(&LogPause),
      loaded_(std::move(loaded)),
      settings_(loaded_.settings),
      start_time_(TimestampNow()),
      metrics_(settings_.deployment, kVersion),
      notifier_(&ProcessEnvironment),
      config_(loaded_, &metrics_),
      security_(settings_, &metrics_),
      watchdog_(notifier_) {}

Daemon::~Daemon() { StopAll(); }

std::optional<StartFailure> Daemon::Start() {
  for (auto step : {&Daemon::OpenData, &Daemon::OpenSecurity, &Daemon::StartHttp,
                    &Daemon::StartJobs, &Daemon::StartTrainingService, &Daemon::StartLaunchers}) {
    std::optional<StartFailure> failure = (this->*step)();
    if (failure) return failure;
  }
  started_ = true;
  Tend();
  spdlog::info("genesisd {} serves gRPC on {} and HTTP on http://{}", kVersion, grpc_address_,
               http_address_);
  const std::string problem = WriteEndpoints();
  if (!problem.empty()) return StartFailure{ExitCode::kStoreFailure, problem};
  AddReloadableParts();
  watchdog_.Start(grpc_address_, security_.tls() != nullptr,
                  [this](std::function<void()> alive) { jobs_->AskWriter(std::move(alive)); });
  notifier_.Ready(StatusLine());
  return std::nullopt;
}

void Daemon::AddReloadableParts() {
  using Commit = RuntimeConfig::Commit;
  security_.AddTo(config_);
  config_.AddPart([this](const Settings& next) -> absl::StatusOr<Commit> {
    absl::StatusOr<std::vector<WebhookEndpoint>> endpoints = LoadWebhooks(next.webhooks.file);
    if (!endpoints.ok()) return endpoints.status();
    return [this, endpoints = *std::move(endpoints)] { webhooks_->Replace(endpoints); };
  });
  config_.AddPart([this](const Settings& next) -> absl::StatusOr<Commit> {
    return [this, level = next.log.level, queue = next.queue.max_jobs, quotas = next.quotas,
            watch = next.precision.failure_watch] {
      SetLogLevel(level);
      jobs_->admission().SetQueueLimit(queue);
      jobs_->SetQuotas(quotas);
      owners_->SetQuota(quotas.stored_bytes);
      gate_->SetRequestRate(quotas.requests_per_second);
      jobs_->SetFailureWatch(watch);
    };
  });
}

std::optional<StartFailure> Daemon::OpenData() {
  absl::StatusOr<std::unique_ptr<DataDir>> dir = DataDir::Acquire(settings_.data_dir);
  if (!dir.ok()) {
    return StartFailure(
        absl::IsAlreadyExists(dir.status()) ? ExitCode::kDataDirInUse : ExitCode::kStoreFailure,
        dir.status());
  }
  data_dir_ = *std::move(dir);
  const absl::Status logging = InitLogging(settings_.log);
  if (!logging.ok()) return StartFailure(ExitCode::kStoreFailure, logging);
  LogGate();
  for (const std::string& each : {settings_.data_dir + "/run", settings_.data_dir + "/log/workers",
                                  settings_.datasets.root, settings_.checkpoints.dir}) {
    std::error_code error;
    std::filesystem::create_directories(each, error);
    if (error) {
      return StartFailure{ExitCode::kStoreFailure,
                          absl::StrCat("cannot create folder ", each, ": ", error.message())};
    }
  }
  absl::StatusOr<std::unique_ptr<JobStore>> store = JobStore::Open(
      settings_.data_dir,
      {settings_.store.full_check ? Database::Check::kFull : Database::Check::kQuick});
  if (!store.ok()) return StartFailure(ExitCode::kStoreFailure, store.status());
  store_ = *std::move(store);
  absl::StatusOr<std::unique_ptr<DatasetOwners>> owners = DatasetOwners::Open(
      settings_.datasets.root, Visibility(settings_.auth.own_jobs_only),
      [this](const std::string& owner) -> absl::StatusOr<int64_t> {
        const absl::StatusOr<ReaderPool::Lease> lease = store_->readers().Borrow();
        if (!lease.ok()) return lease.status();
        return ReadCheckpointBytes(**lease, owner);
      });
  if (!owners.ok()) return StartFailure(ExitCode::kStoreFailure, owners.status());
  owners_ = *std::move(owners);
  owners_->SetQuota(settings_.quotas.stored_bytes);
  return std::nullopt;
}

void Daemon::LogGate() const {
  for (const std::string& warning : loaded_.warnings) spdlog::warn("{}", warning);
  for (const std::string& error : settings_.gate.errors) spdlog::error("{}", error);
  spdlog::info("fp16_enabled: {} ({})", settings_.gate.enabled ? "True" : "False",
               settings_.gate.reason);
  if (!settings_.gate.enabled) spdlog::info("FP16 training disabled - using FP32");
}

// Makes handlers that serve the pages at once, but the API only once all its components exist.
HttpHandlers Daemon::MakeHttpHandlers() {
  RouteSources sources;
  sources.readiness = [this] { return CheckReadiness(); };
  sources.stats = [this] {
    return started_ ? jobs_->queries().Stats() : training::v1::StatsResponse::default_instance();
  };
  sources.info = [this] { return Info(); };
  sources.recent_jobs = [this] {
    return started_ ? RecentJobs() : std::vector<training::v1::Job>();
  };
  sources.history = [this] {
    return started_ ? RecentHistory() : std::vector<training::v1::HistoryRow>();
  };
  sources.metrics = [this](MetricsFormat format) { return metrics_.Render(format); };
  sources.on_response = [this](const std::string& path, int status) {
    metrics_.Request("http", path, absl::StrCat(status));
  };
  HttpHandlers handlers = Pages(MakeRoutes(std::move(sources)));
  handlers.handle = [this, pages = std::move(handlers.handle)](const HttpRequest& request,
                                                               const Respond& respond) {
    const bool exports = MetricsExport::IsHere(request);
    const bool signs_in = SignIn::IsHere(request);
    if (!exports && !signs_in && !ApiRoutes::IsHere(request)) return pages(request, respond);
    if (!started_) {
      metrics_.Request("http", "other", "503");
      return respond(ErrorResponse(absl::UnavailableError("the daemon is starting; try again")));
    }
    if (exports) return export_->Handle(request, respond);
    if (signs_in) return sign_in_->Handle(request, respond);
    http_api_->Handle(request, respond);
  };
  // Called for every request before its body is read.
  handlers.upload = [this, hosts = HostCheck(settings_)](const HttpRequest& request,
                                                         const Respond& respond) {
    const bool says_little = request.path == "/healthz" || request.path == "/readyz";
    if (absl::Status status = hosts.Check(request); !status.ok() && !says_little) {
      metrics_.Request("http", "other", "403");
      return HttpUploadStart{.refusal = ErrorResponse(status)};
    }
    return started_ ? http_api_->Upload(request, respond) : HttpUploadStart();
  };
  handlers.refuse = [this](const HttpRequest& request, int status, const std::string& why) {
    metrics_.Request("http", "other", absl::StrCat(status));
    return ApiRoutes::Refuse(request, status, why);
  };
  handlers.is_probe = &IsProbe;
  return handlers;
}

std::optional<StartFailure> Daemon::StartHttp() {
  absl::StatusOr<std::unique_ptr<HttpServer>> http =
      HttpServer::Start(settings_.http.listen, MakeHttpHandlers(), {},
                        security_.tls() ? MakeHttpTls(security_.tls()) : nullptr);
  if (!http.ok()) return StartFailure(ExitCode::kAddressInUse, http.status());
  http_ = *std::move(http);
  http_address_ = WithPort(settings_.http.listen, http_->port());
  return std::nullopt;
}

std::optional<StartFailure> Daemon::StartJobs() {
  absl::StatusOr<std::vector<WebhookEndpoint>> webhooks = LoadWebhooks(settings_.webhooks.file);
  if (!webhooks.ok()) return StartFailure(ExitCode::kUsage, webhooks.status());
  const std::string socket = settings_.data_dir + "/run/worker.sock";
  WorkerPool::Options pool;
  pool.workers = settings_.workers;
  pool.workers.devices = FindDevices(settings_.workers.devices);
  pool.hang = settings_.hang;
  pool.address = "unix:" + socket;
  pool.log_dir = settings_.data_dir + "/log/workers";
  pool.threads = std::max(1, UsableProcessors() / settings_.workers.slots);
  if (settings_.workers.remote) {
    const absl::StatusOr<std::string> id = EnsureFolderId(settings_.checkpoints.dir);
    if (!id.ok()) return StartFailure(ExitCode::kStoreFailure, id.status());
    pool.remote.emplace();
    pool.remote->set_path(settings_.checkpoints.dir);
    pool.remote->set_id(*id);
  }
  telemetry_ = MakeTelemetry(pool.workers.devices);
  pool_ = std::make_unique<WorkerPool>(std::move(pool));
  if (std::optional<StartFailure> failure = AddLaunchers()) return failure;
  jobs_ = std::make_unique<JobManager>(
      JobManager::Options{settings_.datasets.root, settings_.checkpoints.dir,
                          settings_.compiled_dir(), settings_.workers.cuda_graphs, settings_.queue,
                          settings_.quotas, settings_.auth.own_jobs_only, settings_.scheduler,
                          settings_.gate, settings_.precision, settings_.rehearsals,
                          settings_.retention,
                          [this](const training::v1::HistoryRow& row) { telemetry_->Note(row); },
                          owners_.get(), &launchers_, settings_.launchers.poll_seconds},
      store_.get(), pool_.get(), &metrics_);
  const absl::Status recovered = jobs_->Recover();
  if (!recovered.ok()) return StartFailure(ExitCode::kStoreFailure, recovered);
  if (!settings_.otlp.endpoint.empty()) {
    otlp_ = std::make_unique<OtlpExporter>(settings_.otlp.endpoint, &jobs_->view(),
                                           jobs_->event_log().newest_stored(), &metrics_);
    otlp_->Start();
  }
  pool_->SetEvents(jobs_->worker_events());
  jobs_->Start();
  worker_service_ = std::make_unique<WorkerServiceImpl>(pool_.get());
  absl::StatusOr<std::unique_ptr<WorkerListener>> listener =
      WorkerListener::Start(socket, worker_service_.get());
  if (!listener.ok()) return StartFailure(ExitCode::kAddressInUse, listener.status());
  worker_listener_ = *std::move(listener);
  pool_->Start();
  telemetry_->Start();
  webhooks_ = std::make_unique<WebhookSender>(&store_->readers(), jobs_.get(), &metrics_);
  webhooks_->Replace(*std::move(webhooks));
  sweeps_ = std::make_unique<SweepController>(&store_->readers(), jobs_.get(),
                                              Visibility(settings_.auth.own_jobs_only));
  const absl::Status swept = sweeps_->Start();
  if (!swept.ok()) return StartFailure(ExitCode::kStoreFailure, swept);
  return std::nullopt;
}

std::unique_ptr<Telemetry> Daemon::MakeTelemetry(const std::vector<std::string>& devices) {
  Telemetry::Options options;
  options.data_dir = settings_.data_dir;
  options.machine.volumes = {{"data", settings_.data_dir},
                             {"checkpoints", settings_.checkpoints.dir}};
  options.machine.devices = devices;
  options.history.interval = absl::Seconds(settings_.history.interval_seconds);
  options.history.retention = absl::Hours(24) * settings_.history.retention_days;
  return std::make_unique<Telemetry>(std::move(options), &metrics_,
                                     [this] { return jobs_->queries().HistoryRows(); });
}

std::optional<StartFailure> Daemon::StartTrainingService() {
  datasets_ = std::make_unique<ReplayStore>(owners_.get());
  uploads_ = std::make_unique<UploadStore>(owners_.get(), settings_.datasets.max_uploads_bytes);
  CheckpointFiles::Options files;
  files.dir = settings_.checkpoints.dir;
  files.verifier = settings_.workers.program;
  files.max_import_bytes = settings_.checkpoints.max_import_bytes;
  files_ = std::make_unique<CheckpointFiles>(std::move(files));
  curves_ = std::make_unique<CurveRetention>(
      settings_.checkpoints.dir, settings_.history.max_curves_bytes,
      [this](const std::string& id) { return CurveOwnerOf(jobs_->view(), id); });
  backup_ = std::make_unique<StoreBackup>(settings_.data_dir);
  weights_ = std::make_unique<WeightsHub>(pool_.get(), &jobs_->view(),
                                          settings_.data_dir + "/run/memory.sock");
  absl::StatusOr<std::unique_ptr<WeightsListener>> weights = WeightsListener::Start(weights_.get());
  if (!weights.ok()) return StartFailure(ExitCode::kAddressInUse, weights.status());
  weights_listener_ = *std::move(weights);
  gate_ = std::make_unique<ApiGate>(security_.authenticator(), security_.audit(), &metrics_);
  gate_->SetRequestRate(settings_.quotas.requests_per_second);
  PredictionHub::Options predictions;
  predictions.program = settings_.workers.program;
  predictions.log_dir = settings_.data_dir + "/log";
  predictions.datasets_root = settings_.datasets.root;
  predictions.checkpoint_dir = settings_.checkpoints.dir;
  predictions.max_processes = settings_.workers.predictors;
  predictions_ = std::make_unique<PredictionHub>(
      std::move(predictions), &jobs_->view(), weights_.get(),
      [this](std::function<void()> task) { gate_->Post(std::move(task)); });
  watches_ = std::make_unique<EventWatches>(&jobs_->event_log(), &jobs_->view());
  api_ = std::make_unique<TrainingApi>(TrainingApi::Parts{
      jobs_.get(), sweeps_.get(), pool_.get(), files_.get(), datasets_.get(), uploads_.get(),
      owners_.get(), backup_.get(), telemetry_->history(), &config_, watches_.get(),
      predictions_.get(), security_.authenticator(), [this] { return Info(); }});
  remote_workers_ = std::make_unique<WorkerServiceImpl>(pool_.get(), gate_.get(), weights_.get());
  const ApiParts parts = {gate_.get(),  api_.get(), jobs_.get(),    datasets_.get(),
                          files_.get(), &metrics_,  watches_.get(), weights_.get()};
  training_service_ = std::make_unique<TrainingServiceImpl>(parts);
  http_api_ = std::make_unique<ApiRoutes>(parts);
  sign_in_ = std::make_unique<SignIn>(security_.authenticator(), gate_.get());
  export_ = std::make_unique<MetricsExport>(MetricsExport::Parts{
      &metrics_, settings_.auth.own_jobs_only ? nullptr : telemetry_->history(),
      [this] { return Info(); }, [this] { return jobs_->queries().Stats().fp16_enabled_runtime(); },
      [this] { return RecentJobs(); },
      [this](const std::string& path, int status) {
        metrics_.Request("http", path, absl::StrCat(status));
      }});
  const std::vector<std::string> described = {kTrainingServiceName, kHealthServiceName};
  reflection_ = std::make_unique<ReflectionV1>(gate_.get(), described);
  old_reflection_ = std::make_unique<ReflectionV1Alpha>(gate_.get(), described);
  absl::StatusOr<std::unique_ptr<TrainingListener>> listener = TrainingListener::Start(
      {.settings = &settings_,
       .tls = security_.tls(),
       .services = {training_service_.get(), remote_workers_.get(), reflection_.get(),
                    old_reflection_.get()},
       .refused = [this](const std::string& reason) { metrics_.ConnectionRefused(reason); },
       .unknown_method = [this] { metrics_.Request("grpc", "other", "UNIMPLEMENTED"); }});
  if (!listener.ok()) return StartFailure(ExitCode::kAddressInUse, listener.status());
  training_listener_ = *std::move(listener);
  grpc_address_ = WithPort(settings_.grpc.listen, training_listener_->port());
  return std::nullopt;
}

// Writes <data_dir>/run/endpoints for scripts that let the daemon pick its ports.
std::string Daemon::WriteEndpoints() const {
  const std::string path = settings_.data_dir + "/run/endpoints";
  const absl::Status written = WriteDurably(
      path,
      absl::StrCat("grpc: ", grpc_address_, "\nhttp: ", http_address_, "\npid: ", getpid(), "\n"));
  return written.ok() ? "" : absl::StrCat("cannot write ", written.message());
}

Readiness Daemon::CheckReadiness() const {
  Readiness readiness;
  if (!started_) readiness.reasons.push_back("the daemon is starting");
  if (draining_) readiness.reasons.push_back("the daemon is draining");
  if (started_) {
    const std::string workers = pool_->problem();
    if (!workers.empty()) readiness.reasons.push_back(workers);
    const absl::Status store = jobs_->store_status();
    if (!store.ok()) readiness.reasons.push_back(std::string(store.message()));
  }
  readiness.ready = readiness.reasons.empty();
  readiness.notes = settings_.gate.errors;
  for (std::string& note : InsecureNotes(settings_)) readiness.notes.push_back(std::move(note));
  if (started_) {
    for (std::string& note : pool_->notes()) readiness.notes.push_back(std::move(note));
  }
  return readiness;
}

training::v1::GetServerInfoResponse Daemon::Info() const {
  training::v1::GetServerInfoResponse info;
  info.set_version(kVersion);
  *info.mutable_start_time() = start_time_;
  info.set_ready(CheckReadiness().ready);
  const PrecisionGate gate = started_ ? jobs_->precision().gate() : settings_.gate;
  info.set_reduced_precision_enabled(gate.enabled);
  info.set_reduced_precision_reason(gate.reason);
  info.set_data_dir(settings_.data_dir);
  info.set_deployment(settings_.deployment);
  if (started_) {
    info.set_http_address(absl::StrCat(security_.tls() ? "https://" : "http://", http_address_));
  }
  return info;
}

// Returns recent rows for the statistics page; none on an error, which the page cannot show.
std::vector<training::v1::HistoryRow> Daemon::RecentHistory() const {
  std::vector<training::v1::HistoryRow> recent;
  if (settings_.auth.own_jobs_only) return recent;  // The page can be read without a token.
  const auto rows = telemetry_->history()->ReadNewest(absl::Now() - absl::Hours(24), kRecentRows);
  if (!rows.ok()) return recent;
  for (const HistoryStore::Row& each : *rows) recent.push_back(each.row);
  return recent;
}

std::vector<training::v1::Job> Daemon::RecentJobs() const {
  JobQuery newest;
  newest.limit = kRecentJobs;
  std::vector<training::v1::Job> jobs;
  if (settings_.auth.own_jobs_only) return jobs;  // The page can be read without a token.
  absl::StatusOr<std::vector<StoredJob>> listed = jobs_->queries().List(Caller(), newest);
  if (!listed.ok()) {
    spdlog::error("the newest jobs cannot be read: {}", listed.status().ToString());
    return jobs;
  }
  for (StoredJob& each : *listed) jobs.push_back(std::move(each.job));
  return jobs;
}

void Daemon::OnHangup() {
  notifier_.Reloading();
  for (const absl::Status& status : {ReopenLog(), security_.ReopenAudit()}) {
    if (!status.ok()) spdlog::error("{}", std::string(status.message()));
  }
  // No caller waits for the result, and Reload itself logs and counts errors.
  config_.Reload(/*validate_only=*/false).IgnoreError();
  notifier_.Ready(StatusLine());
}

std::string Daemon::StatusLine() const {
  return absl::StrCat("Serves gRPC on ", grpc_address_, " and HTTP on ", http_address_);
}

void Daemon::Tend() {
  const bool ready = CheckReadiness().ready;
  training_listener_->health()->SetServingStatus(kTrainingServiceName, ready);
  metrics_.SetReady(ready);
  metrics_.SetGate(jobs_->precision().gate().enabled,
                   static_cast<int>(settings_.gate.errors.size()));
  const WorkerPool::Counts workers = pool_->counts();
  metrics_.SetWorkers(workers.busy, workers.warm, pool_->slots());
  for (const training::v1::DeviceStatus& device : pool_->devices()) {
    metrics_.SetQuarantined(device.name(), device.quarantined());
  }
  gate_->Tend();
  predictions_->Tend();
  watches_->Tend();
  metrics_.ErrorsCaught(TakeCaughtErrors());
  telemetry_->HideStale();
  config_.Tend();
  watchdog_.Feed();
}

bool Daemon::Drain() {
  const absl::Duration timeout = absl::Seconds(config_.settings().drain.timeout_seconds);
  spdlog::info("draining: no new jobs; running ones are checkpointed within {} s",
               absl::ToInt64Seconds(timeout));
  notifier_.Stopping(timeout + 3 * kStopGrace);
  watchdog_.Stop();
  config_.Close();
  draining_ = true;
  Tend();
  jobs_->Drain();
  pool_->Drain();
  const absl::Time deadline = RunningNow() + timeout;
  const auto busy = [this] { return pool_->counts().busy + pool_->counts().reserved_busy > 0; };
  while (busy() && RunningNow() < deadline) absl::SleepFor(absl::Milliseconds(20));
  const bool clean = !busy();
  for (const training::v1::WorkerInfo& worker : pool_->workers()) {
    if (worker.state() != training::v1::WORKER_STATE_BUSY) continue;
    spdlog::error("drain: job {} on worker {}, process {}, did not stop within {} s",
                  worker.job_id(), worker.id(), worker.pid(), absl::ToInt64Seconds(timeout));
  }
  StopAll();
  spdlog::info("genesisd ended {}", clean ? "cleanly" : "after ending workers by force");
  return clean;
}

// Stops the workers first, so that their last reports still arrive, and the gRPC listeners before
// the writer, because the writer runs the callbacks of their calls.
void Daemon::StopAll() {
  if (pool_) pool_->Stop(kStopGrace);
  if (files_) files_->Stop();
  const auto deadline = std::chrono::system_clock::now() + absl::ToChronoSeconds(kStopGrace);
  watchdog_.Stop();
  config_.Close();
  if (watches_) watches_->Stop();
  if (predictions_) predictions_->Stop();
  if (training_listener_) training_listener_->Stop(deadline);
  if (worker_listener_) worker_listener_->Stop(deadline);
  if (weights_listener_) weights_listener_->Stop();
  launchers_.Stop();
  if (webhooks_) webhooks_->Stop();
  if (sweeps_) sweeps_->Stop();
  if (jobs_) jobs_->Stop();
  if (otlp_) otlp_->Stop();
  if (telemetry_) telemetry_->Stop();
  if (http_) http_->Stop();
}

}  // namespace genesis
