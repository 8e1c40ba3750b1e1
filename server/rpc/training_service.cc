#include "server/rpc/training_service.h"

#include "server/api/subject.h"
#include "server/rpc/append_reactor.h"
#include "server/rpc/download_reactor.h"
#include "server/rpc/grpc_credentials.h"
#include "server/rpc/import_reactor.h"
#include "server/rpc/status_mapping.h"
#include "server/rpc/watch_reactor.h"

namespace genesis {

using grpc::CallbackServerContext;
using grpc::ServerUnaryReactor;

template <typename Request, typename Response>
ServerUnaryReactor* TrainingServiceImpl::Serve(CallbackServerContext* context,
                                               const Request* request, Response* response,
                                               Method<Request, Response> method) {
  static const MethodRow& row = MethodOfRequest(Request::descriptor()->name());
  ServerUnaryReactor* reactor = context->DefaultReactor();
  // The client has cancelled, so there is no need to check credentials or the request.
  if (context->IsCancelled()) {
    parts_.metrics->Request("grpc", row.name, "CANCELLED");
    reactor->Finish(grpc::Status::CANCELLED);
    return reactor;
  }
  const ApiCall call(parts_.gate, row, "grpc", CredentialsOf(*context));
  // Read first, because the request is gone once the reactor has finished.
  const std::string subject = SubjectOf(*request);
  const Callback<Response> callback = [call, subject, reactor,
                                       response](const absl::StatusOr<Response>& result) {
    if (result.ok()) *response = *result;
    call.Done(subject, result.status());
    reactor->Finish(ToGrpcStatus(result.status()));
  };
  if (call.admission().ok()) {
    CallUnary<Request, Response>(parts_.api, method, call.caller(), *request, callback);
  } else {
    callback(call.admission());
  }
  return reactor;
}

#define GENESIS_UNARY(Name)                                                                 \
  ServerUnaryReactor* TrainingServiceImpl::Name(CallbackServerContext* context,             \
                                                const training::v1::Name##Request* request, \
                                                training::v1::Name##Response* response) {   \
    return Serve(context, request, response, &TrainingApi::Name);                           \
  }
GENESIS_UNARY_METHODS(GENESIS_UNARY)
#undef GENESIS_UNARY

grpc::ServerWriteReactor<training::v1::WatchJobResponse>* TrainingServiceImpl::WatchJob(
    CallbackServerContext* context, const training::v1::WatchJobRequest* request) {
  static const MethodRow& row = MethodOfRequest("WatchJobRequest");
  return StartWatch(ApiCall(parts_.gate, row, "grpc", CredentialsOf(*context)), parts_, *request);
}

grpc::ServerWriteReactor<training::v1::WatchJobsResponse>* TrainingServiceImpl::WatchJobs(
    CallbackServerContext* context, const training::v1::WatchJobsRequest* request) {
  static const MethodRow& row = MethodOfRequest("WatchJobsRequest");
  return StartWatch(ApiCall(parts_.gate, row, "grpc", CredentialsOf(*context)), parts_, *request);
}

grpc::ServerWriteReactor<training::v1::WatchWeightsResponse>* TrainingServiceImpl::WatchWeights(
    CallbackServerContext* context, const training::v1::WatchWeightsRequest* request) {
  static const MethodRow& row = MethodOfRequest("WatchWeightsRequest");
  return StartWatch(ApiCall(parts_.gate, row, "grpc", CredentialsOf(*context)), parts_, *request);
}

grpc::ServerReadReactor<training::v1::AppendTrajectoriesRequest>*
TrainingServiceImpl::AppendTrajectories(CallbackServerContext* context,
                                        training::v1::AppendTrajectoriesResponse* response) {
  static const MethodRow& row = MethodOfRequest("AppendTrajectoriesRequest");
  return StartAppend(ApiCall(parts_.gate, row, "grpc", CredentialsOf(*context)), context,
                     parts_.datasets, parts_.metrics, response);
}

grpc::ServerWriteReactor<training::v1::DownloadCheckpointResponse>*
TrainingServiceImpl::DownloadCheckpoint(CallbackServerContext* context,
                                        const training::v1::DownloadCheckpointRequest* request) {
  static const MethodRow& row = MethodOfRequest("DownloadCheckpointRequest");
  return StartDownload(ApiCall(parts_.gate, row, "grpc", CredentialsOf(*context)), parts_.jobs,
                       parts_.files, *request);
}

grpc::ServerReadReactor<training::v1::ImportCheckpointRequest>*
TrainingServiceImpl::ImportCheckpoint(CallbackServerContext* context,
                                      training::v1::ImportCheckpointResponse* response) {
  static const MethodRow& row = MethodOfRequest("ImportCheckpointRequest");
  return StartImport(ApiCall(parts_.gate, row, "grpc", CredentialsOf(*context)), context,
                     parts_.jobs, parts_.files, response);
}

}  // namespace genesis
