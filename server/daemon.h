#pragma once

#include <atomic>
#include <memory>
#include <optional>
#include <string>

#include "absl/status/statusor.h"
#include "base/running_time.h"
#include "config/settings/settings.h"
#include "metrics/metrics.h"
#include "server/api/api_gate.h"
#include "server/api/runtime_config.h"
#include "server/api/training_api.h"
#include "server/auth/dataset_owners.h"
#include "server/checkpoints/checkpoint_files.h"
#include "server/checkpoints/curve_retention.h"
#include "server/datasets/replay_store.h"
#include "server/datasets/upload_store.h"
#include "server/http/http_server.h"
#include "server/jobs/job_manager.h"
#include "server/launchers/launcher_threads.h"
#include "server/otlp/otlp_exporter.h"
#include "server/pages/metrics_export.h"
#include "server/pages/routes.h"
#include "server/pages/sign_in.h"
#include "server/predictions/prediction_hub.h"
#include "server/rest/api_routes.h"
#include "server/rpc/reflection_service.h"
#include "server/rpc/training_listener.h"
#include "server/rpc/training_service.h"
#include "server/rpc/weights_listener.h"
#include "server/rpc/worker_listener.h"
#include "server/rpc/worker_service.h"
#include "server/security.h"
#include "server/start_failure.h"
#include "server/store/backup.h"
#include "server/store/data_dir.h"
#include "server/store/job_store.h"
#include "server/sweeps/sweep_controller.h"
#include "server/systemd/notifier.h"
#include "server/systemd/service_watchdog.h"
#include "server/telemetry/telemetry.h"
#include "server/webhooks/webhook_sender.h"
#include "server/weights/weights_hub.h"
#include "server/workers/worker_pool.h"

namespace genesis {

// The whole of genesisd: owns all components, starts them in dependency order and stops them in the
// order of StopAll. Used by the main thread; components have threads of their own.
class Daemon {
 public:
  explicit Daemon(LoadedSettings loaded);
  ~Daemon();

  // Starts the store, recovery, workers and the listeners, and finally reports readiness.
  std::optional<StartFailure> Start();
  // Updates readiness, runs requested reloads, feeds the watchdog. Called a few times a second.
  void Tend();
  // Handles SIGHUP: reopens the logs and reloads the configuration.
  void OnHangup();
  // Reports the shutdown first, then checkpoints the running jobs and queues them for the next
  // start. Returns true if every worker released its job in time.
  bool Drain();

  // Returns the actual address, e.g. "127.0.0.1:50051". Valid after Start.
  const std::string& grpc_address() const { return grpc_address_; }
  const std::string& http_address() const { return http_address_; }

 private:
  std::optional<StartFailure> OpenData();
  void AddReloadableParts();
  std::string StatusLine() const;
  std::optional<StartFailure> OpenSecurity() { return security_.Open(); }
  std::optional<StartFailure> StartHttp();
  HttpHandlers MakeHttpHandlers();
  std::optional<StartFailure> StartJobs();
  std::optional<StartFailure> StartTrainingService();
  std::optional<StartFailure> AddLaunchers();
  std::optional<StartFailure> StartLaunchers();
  void LogGate() const;
  std::string WriteEndpoints() const;
  Readiness CheckReadiness() const;
  training::v1::GetServerInfoResponse Info() const;
  std::vector<training::v1::Job> RecentJobs() const;
  std::vector<training::v1::HistoryRow> RecentHistory() const;
  std::unique_ptr<Telemetry> MakeTelemetry(const std::vector<std::string>& devices);
  void StopAll();

  const Heartbeat heartbeat_;
  const LoadedSettings loaded_;
  const Settings& settings_;
  const google::protobuf::Timestamp start_time_;
  Metrics metrics_;
  const Notifier notifier_;
  RuntimeConfig config_;
  Security security_;
  std::unique_ptr<DataDir> data_dir_;
  std::unique_ptr<JobStore> store_;
  std::unique_ptr<DatasetOwners> owners_;
  std::unique_ptr<Telemetry> telemetry_;
  LauncherThreads launchers_;
  std::unique_ptr<WorkerPool> pool_;
  std::unique_ptr<JobManager> jobs_;
  std::unique_ptr<OtlpExporter> otlp_;  // Null without otlp.endpoint.
  std::unique_ptr<WebhookSender> webhooks_;
  std::unique_ptr<SweepController> sweeps_;
  std::unique_ptr<WorkerServiceImpl> worker_service_;  // On the socket in the data folder.
  std::unique_ptr<WorkerServiceImpl> remote_workers_;  // On grpc.listen.
  std::unique_ptr<ReplayStore> datasets_;
  std::unique_ptr<UploadStore> uploads_;
  std::unique_ptr<StoreBackup> backup_;
  std::unique_ptr<CheckpointFiles> files_;
  std::unique_ptr<CurveRetention> curves_;
  std::unique_ptr<WeightsHub> weights_;
  std::unique_ptr<ApiGate> gate_;
  std::unique_ptr<PredictionHub> predictions_;
  std::unique_ptr<EventWatches> watches_;
  std::unique_ptr<TrainingApi> api_;
  std::unique_ptr<TrainingServiceImpl> training_service_;
  std::unique_ptr<ReflectionV1> reflection_;
  std::unique_ptr<ReflectionV1Alpha> old_reflection_;
  std::unique_ptr<WorkerListener> worker_listener_;
  std::unique_ptr<WeightsListener> weights_listener_;
  std::unique_ptr<TrainingListener> training_listener_;
  ServiceWatchdog watchdog_;
  std::unique_ptr<ApiRoutes> http_api_;
  std::unique_ptr<MetricsExport> export_;
  std::unique_ptr<SignIn> sign_in_;
  std::unique_ptr<HttpServer> http_;
  std::string grpc_address_;
  std::string http_address_;
  // Read by the HTTP thread while the main thread starts and drains.
  std::atomic<bool> started_{false};
  std::atomic<bool> draining_{false};
};

}  // namespace genesis
