#pragma once

#include <atomic>
#include <memory>
#include <optional>
#include <string>

#include "absl/status/statusor.h"
#include "config/exit_code.h"
#include "config/settings.h"
#include "metrics/metrics.h"
#include "server/datasets/replay_store.h"
#include "server/http/http_server.h"
#include "server/http/routes.h"
#include "server/jobs/job_manager.h"
#include "server/rpc/grpc_listener.h"
#include "server/rpc/training_service.h"
#include "server/store/data_dir.h"
#include "server/store/job_store.h"
#include "server/workers/worker_pool.h"
#include "server/workers/worker_service.h"

namespace genesis {

// Why the daemon could not start.
struct StartFailure {
  ExitCode code;
  std::string message;
};

// genesisd put together: owns every part, starts them in the order in which each needs the one
// before, and takes them down in the reverse. Used by the main thread; the parts have their own.
class Daemon {
 public:
  explicit Daemon(LoadedSettings loaded);
  ~Daemon();

  // Store, recovery, workers, then the listeners; ready is said after it is true.
  std::optional<StartFailure> Start();
  // Refreshes what is told of readiness; called a few times a second.
  void Tend();
  // Going away is said first, then running jobs are checkpointed and queued for the next start.
  // True when every worker ended in time.
  bool Drain();

  // "127.0.0.1:50051", after Start.
  const std::string& grpc_address() const { return grpc_address_; }
  const std::string& http_address() const { return http_address_; }

 private:
  std::optional<StartFailure> OpenData();
  std::optional<StartFailure> StartHttp();
  std::optional<StartFailure> StartJobs();
  std::optional<StartFailure> StartTrainingService();
  void LogGate() const;
  std::string WriteEndpoints() const;
  Readiness CheckReadiness() const;
  training::v1::GetServerInfoResponse Info() const;
  std::vector<training::v1::Job> RecentJobs() const;
  void StopAll();

  const LoadedSettings loaded_;
  const Settings& settings_;
  const google::protobuf::Timestamp start_time_;
  Metrics metrics_;
  std::unique_ptr<DataDir> data_dir_;
  std::unique_ptr<JobStore> store_;
  std::unique_ptr<WorkerPool> pool_;
  std::unique_ptr<JobManager> jobs_;
  std::unique_ptr<WorkerServiceImpl> worker_service_;
  std::unique_ptr<ReplayStore> datasets_;
  std::unique_ptr<TrainingServiceImpl> training_service_;
  GrpcListener worker_listener_;
  GrpcListener training_listener_;
  std::unique_ptr<HttpServer> http_;
  std::string grpc_address_;
  std::string http_address_;
  // The HTTP thread reads these while the main thread starts and drains.
  std::atomic<bool> started_{false};
  std::atomic<bool> draining_{false};
};

}  // namespace genesis
