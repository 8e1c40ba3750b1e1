#pragma once

#include "genesis/training/v1/worker_service.grpc.pb.h"
#include "server/workers/worker_pool.h"

namespace genesis {

// WorkerService.Attach: one reactor per worker, between its stream and the pool. Holds no state.
class WorkerServiceImpl final : public training::v1::WorkerService::CallbackService {
 public:
  explicit WorkerServiceImpl(WorkerPool* pool) : pool_(pool) {}

  grpc::ServerBidiReactor<training::v1::AttachRequest, training::v1::AttachResponse>* Attach(
      grpc::CallbackServerContext* context) override;

 private:
  WorkerPool* const pool_;
};

}  // namespace genesis
