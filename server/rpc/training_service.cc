#include "server/rpc/training_service.h"

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "server/rpc/append_reactor.h"
#include "server/rpc/page.h"
#include "server/rpc/status_mapping.h"
#include "server/rpc/watch_reactor.h"

namespace genesis {

using grpc::CallbackServerContext;
using grpc::ServerUnaryReactor;

void TrainingServiceImpl::Reply(ServerUnaryReactor* reactor, const char* method,
                                const absl::Status& status) {
  metrics_->Request("grpc", method, absl::StatusCodeToString(status.code()));
  reactor->Finish(ToGrpcStatus(status));
}

ServerUnaryReactor* TrainingServiceImpl::Train(CallbackServerContext* context,
                                               const training::v1::TrainRequest* request,
                                               training::v1::TrainResponse* response) {
  ServerUnaryReactor* reactor = context->DefaultReactor();
  jobs_->Train(*request, [=, this](const absl::StatusOr<training::v1::Job>& job) {
    if (job.ok()) *response->mutable_job() = *job;
    Reply(reactor, "Train", job.status());
  });
  return reactor;
}

ServerUnaryReactor* TrainingServiceImpl::GetJob(CallbackServerContext* context,
                                                const training::v1::GetJobRequest* request,
                                                training::v1::GetJobResponse* response) {
  ServerUnaryReactor* reactor = context->DefaultReactor();
  const absl::StatusOr<training::v1::Job> job = jobs_->Get(request->job_id());
  if (job.ok()) *response->mutable_job() = *job;
  Reply(reactor, "GetJob", job.status());
  return reactor;
}

ServerUnaryReactor* TrainingServiceImpl::ListJobs(CallbackServerContext* context,
                                                  const training::v1::ListJobsRequest* request,
                                                  training::v1::ListJobsResponse* response) {
  ServerUnaryReactor* reactor = context->DefaultReactor();
  std::vector<training::v1::Job> jobs = jobs_->List();
  std::reverse(jobs.begin(), jobs.end());
  const auto& states = request->states();
  if (!states.empty()) {
    std::erase_if(jobs, [&](const training::v1::Job& job) {
      return std::find(states.begin(), states.end(), job.state()) == states.end();
    });
  }
  Reply(reactor, "ListJobs",
        CutPage(jobs, request->page_size(), request->page_token(), response->mutable_jobs(),
                response->mutable_next_page_token()));
  return reactor;
}

grpc::ServerWriteReactor<training::v1::WatchJobResponse>* TrainingServiceImpl::WatchJob(
    CallbackServerContext*, const training::v1::WatchJobRequest* request) {
  return StartWatch(jobs_, metrics_, request->job_id());
}

ServerUnaryReactor* TrainingServiceImpl::CancelJob(CallbackServerContext* context,
                                                   const training::v1::CancelJobRequest* request,
                                                   training::v1::CancelJobResponse* response) {
  ServerUnaryReactor* reactor = context->DefaultReactor();
  jobs_->Cancel(request->job_id(), [=, this](const absl::StatusOr<training::v1::Job>& job) {
    if (job.ok()) *response->mutable_job() = *job;
    Reply(reactor, "CancelJob", job.status());
  });
  return reactor;
}

ServerUnaryReactor* TrainingServiceImpl::Checkpoint(CallbackServerContext* context,
                                                    const training::v1::CheckpointRequest* request,
                                                    training::v1::CheckpointResponse* response) {
  ServerUnaryReactor* reactor = context->DefaultReactor();
  jobs_->Checkpoint(request->job_id(),
                    [=, this](const absl::StatusOr<training::v1::Checkpoint>& result) {
                      if (result.ok()) *response->mutable_checkpoint() = *result;
                      Reply(reactor, "Checkpoint", result.status());
                    });
  return reactor;
}

ServerUnaryReactor* TrainingServiceImpl::ListCheckpoints(
    CallbackServerContext* context, const training::v1::ListCheckpointsRequest* request,
    training::v1::ListCheckpointsResponse* response) {
  ServerUnaryReactor* reactor = context->DefaultReactor();
  std::vector<training::v1::Checkpoint> checkpoints = jobs_->ListCheckpoints();
  std::reverse(checkpoints.begin(), checkpoints.end());
  absl::Status status;
  if (!request->job_id().empty()) {
    status = jobs_->Get(request->job_id()).status();
    std::erase_if(checkpoints, [&](const training::v1::Checkpoint& checkpoint) {
      return checkpoint.job_id() != request->job_id();
    });
  }
  if (status.ok()) {
    status = CutPage(checkpoints, request->page_size(), request->page_token(),
                     response->mutable_checkpoints(), response->mutable_next_page_token());
  }
  Reply(reactor, "ListCheckpoints", status);
  return reactor;
}

ServerUnaryReactor* TrainingServiceImpl::Stats(CallbackServerContext* context,
                                               const training::v1::StatsRequest*,
                                               training::v1::StatsResponse* response) {
  ServerUnaryReactor* reactor = context->DefaultReactor();
  *response = jobs_->Stats();
  Reply(reactor, "Stats", absl::OkStatus());
  return reactor;
}

ServerUnaryReactor* TrainingServiceImpl::GetServerInfo(
    CallbackServerContext* context, const training::v1::GetServerInfoRequest*,
    training::v1::GetServerInfoResponse* response) {
  ServerUnaryReactor* reactor = context->DefaultReactor();
  *response = info_();
  Reply(reactor, "GetServerInfo", absl::OkStatus());
  return reactor;
}

grpc::ServerReadReactor<training::v1::AppendTrajectoriesRequest>*
TrainingServiceImpl::AppendTrajectories(CallbackServerContext* context,
                                        training::v1::AppendTrajectoriesResponse* response) {
  return StartAppend(context, datasets_, metrics_, response);
}

}  // namespace genesis
