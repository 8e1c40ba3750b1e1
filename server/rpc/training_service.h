#pragma once

#include <functional>

#include "genesis/training/v1/training_service.grpc.pb.h"
#include "metrics/metrics.h"
#include "server/datasets/replay_store.h"
#include "server/jobs/job_manager.h"

namespace genesis {

// TrainingService over JobManager. Holds no state: each method checks, calls the core, maps the
// status once and counts. No method waits; a reactor that waits for the core is finished by it.
class TrainingServiceImpl final : public training::v1::TrainingService::CallbackService {
 public:
  using InfoSource = std::function<training::v1::GetServerInfoResponse()>;

  TrainingServiceImpl(JobManager* jobs, ReplayStore* datasets, Metrics* metrics, InfoSource info)
      : jobs_(jobs), datasets_(datasets), metrics_(metrics), info_(std::move(info)) {}

  grpc::ServerUnaryReactor* Train(grpc::CallbackServerContext* context,
                                  const training::v1::TrainRequest* request,
                                  training::v1::TrainResponse* response) override;
  grpc::ServerUnaryReactor* GetJob(grpc::CallbackServerContext* context,
                                   const training::v1::GetJobRequest* request,
                                   training::v1::GetJobResponse* response) override;
  grpc::ServerUnaryReactor* ListJobs(grpc::CallbackServerContext* context,
                                     const training::v1::ListJobsRequest* request,
                                     training::v1::ListJobsResponse* response) override;
  grpc::ServerWriteReactor<training::v1::WatchJobResponse>* WatchJob(
      grpc::CallbackServerContext* context, const training::v1::WatchJobRequest* request) override;
  grpc::ServerUnaryReactor* CancelJob(grpc::CallbackServerContext* context,
                                      const training::v1::CancelJobRequest* request,
                                      training::v1::CancelJobResponse* response) override;
  grpc::ServerUnaryReactor* Checkpoint(grpc::CallbackServerContext* context,
                                       const training::v1::CheckpointRequest* request,
                                       training::v1::CheckpointResponse* response) override;
  grpc::ServerUnaryReactor* ListCheckpoints(
      grpc::CallbackServerContext* context, const training::v1::ListCheckpointsRequest* request,
      training::v1::ListCheckpointsResponse* response) override;
  grpc::ServerUnaryReactor* Stats(grpc::CallbackServerContext* context,
                                  const training::v1::StatsRequest* request,
                                  training::v1::StatsResponse* response) override;
  grpc::ServerUnaryReactor* GetServerInfo(grpc::CallbackServerContext* context,
                                          const training::v1::GetServerInfoRequest* request,
                                          training::v1::GetServerInfoResponse* response) override;
  grpc::ServerReadReactor<training::v1::AppendTrajectoriesRequest>* AppendTrajectories(
      grpc::CallbackServerContext* context,
      training::v1::AppendTrajectoriesResponse* response) override;

 private:
  // Finishes a unary call: maps the status, counts it.
  void Reply(grpc::ServerUnaryReactor* reactor, const char* method, const absl::Status& status);

  JobManager* const jobs_;
  ReplayStore* const datasets_;
  Metrics* const metrics_;
  const InfoSource info_;
};

}  // namespace genesis
