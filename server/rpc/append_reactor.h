#pragma once

#include <grpcpp/grpcpp.h>

#include "genesis/training/v1/training_service.grpc.pb.h"
#include "metrics/metrics.h"
#include "server/api/api_gate.h"
#include "server/datasets/replay_store.h"

namespace genesis {

// Starts the reactor of one AppendTrajectories call. It reads one message, never more, while a
// thread of the store appends the previous one, so that the disk throttles the client. Finishes
// after the client's last message, at the first error, on cancel, or at server shutdown, but never
// during an append. Then the call is counted and the reactor deletes itself.
grpc::ServerReadReactor<training::v1::AppendTrajectoriesRequest>* StartAppend(
    const ApiCall& call, grpc::CallbackServerContext* context, ReplayStore* store, Metrics* metrics,
    training::v1::AppendTrajectoriesResponse* response);

}  // namespace genesis
