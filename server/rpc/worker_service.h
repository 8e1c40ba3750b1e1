#pragma once

#include "genesis/training/v1/worker_service.grpc.pb.h"
#include "server/api/api_gate.h"
#include "server/weights/weights_hub.h"
#include "server/workers/worker_pool.h"

namespace genesis {

// WorkerService over gRPC: one reactor per worker, between its stream and the pool. Stateless.
class WorkerServiceImpl final : public training::v1::WorkerService::CallbackService {
 public:
  // For workers of this host, on the socket in the data folder, which only the daemon's user can
  // open. Their weights come over WeightsListener.
  explicit WorkerServiceImpl(WorkerPool* pool) : WorkerServiceImpl(pool, nullptr, nullptr) {}
  // For workers of other hosts, which `gate` admits.
  WorkerServiceImpl(WorkerPool* pool, const ApiGate* gate, WeightsHub* weights)
      : pool_(pool), gate_(gate), weights_(weights) {}

  grpc::ServerBidiReactor<training::v1::AttachRequest, training::v1::AttachResponse>* Attach(
      grpc::CallbackServerContext* context) override;
  grpc::ServerReadReactor<training::v1::SendWeightsRequest>* SendWeights(
      grpc::CallbackServerContext* context, training::v1::SendWeightsResponse* response) override;

 private:
  WorkerPool* const pool_;
  const ApiGate* const gate_;
  WeightsHub* const weights_;
};

}  // namespace genesis
