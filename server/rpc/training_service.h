#pragma once

#include "genesis/training/v1/training_service.grpc.pb.h"
#include "server/api/api_parts.h"
#include "server/api/unary_call.h"

namespace genesis {

// TrainingService over gRPC. Admits the call, passes unary calls to TrainingApi and streams to
// their reactors, converts the status and counts the call. Stateless; waits for no change.
class TrainingServiceImpl final : public training::v1::TrainingService::CallbackService {
 public:
  explicit TrainingServiceImpl(const ApiParts& parts) : parts_(parts) {}

#define GENESIS_UNARY(Name)                                                  \
  grpc::ServerUnaryReactor* Name(grpc::CallbackServerContext* context,       \
                                 const training::v1::Name##Request* request, \
                                 training::v1::Name##Response* response) override;
  GENESIS_UNARY_METHODS(GENESIS_UNARY)
#undef GENESIS_UNARY

  grpc::ServerWriteReactor<training::v1::WatchJobResponse>* WatchJob(
      grpc::CallbackServerContext* context, const training::v1::WatchJobRequest* request) override;
  grpc::ServerWriteReactor<training::v1::WatchJobsResponse>* WatchJobs(
      grpc::CallbackServerContext* context, const training::v1::WatchJobsRequest* request) override;
  grpc::ServerWriteReactor<training::v1::WatchWeightsResponse>* WatchWeights(
      grpc::CallbackServerContext* context,
      const training::v1::WatchWeightsRequest* request) override;
  grpc::ServerReadReactor<training::v1::AppendTrajectoriesRequest>* AppendTrajectories(
      grpc::CallbackServerContext* context,
      training::v1::AppendTrajectoriesResponse* response) override;
  grpc::ServerWriteReactor<training::v1::DownloadCheckpointResponse>* DownloadCheckpoint(
      grpc::CallbackServerContext* context,
      const training::v1::DownloadCheckpointRequest* request) override;
  grpc::ServerReadReactor<training::v1::ImportCheckpointRequest>* ImportCheckpoint(
      grpc::CallbackServerContext* context,
      training::v1::ImportCheckpointResponse* response) override;

 private:
  template <typename Request, typename Response>
  using Method = UnaryMember<Request, Response>;

  template <typename Request, typename Response>
  grpc::ServerUnaryReactor* Serve(grpc::CallbackServerContext* context, const Request* request,
                                  Response* response, Method<Request, Response> method);

  const ApiParts parts_;
};

}  // namespace genesis
