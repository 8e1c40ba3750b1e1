#pragma once

#include <grpcpp/grpcpp.h>

#include "genesis/training/v1/training_service.grpc.pb.h"
#include "server/api/api_gate.h"
#include "server/api/api_parts.h"

namespace genesis {

// Start the reactor of one WatchJob, WatchJobs or WatchWeights call. It finishes when its feed
// does, on cancel, or at server shutdown. Then the call is counted and the reactor deletes itself.
grpc::ServerWriteReactor<training::v1::WatchJobResponse>* StartWatch(
    const ApiCall& call, const ApiParts& parts, const training::v1::WatchJobRequest& request);
grpc::ServerWriteReactor<training::v1::WatchJobsResponse>* StartWatch(
    const ApiCall& call, const ApiParts& parts, const training::v1::WatchJobsRequest& request);
grpc::ServerWriteReactor<training::v1::WatchWeightsResponse>* StartWatch(
    const ApiCall& call, const ApiParts& parts, const training::v1::WatchWeightsRequest& request);

}  // namespace genesis
