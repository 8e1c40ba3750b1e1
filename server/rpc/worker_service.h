#pragma once

#include "genesis/training/v1/worker_service.grpc.pb.h"
#include "server/api/api_gate.h"
#include "server/workers/worker_pool.h"

namespace genesis {

// WorkerService over gRPC: one reactor per worker, between its stream and the pool. Stateless.
class WorkerServiceImpl final : public training::v1::WorkerService::CallbackService {
 public:
  // `gate` admits workers of other hosts. It is null for the socket in the data folder, which only
  // the daemon's user can open.
  WorkerServiceImpl(WorkerPool* pool, const ApiGate* gate) : pool_(pool), gate_(gate) {}

  grpc::ServerBidiReactor<training::v1::AttachRequest, training::v1::AttachResponse>* Attach(
      grpc::CallbackServerContext* context) override;

 private:
  WorkerPool* const pool_;
  const ApiGate* const gate_;
};

}  // namespace genesis
