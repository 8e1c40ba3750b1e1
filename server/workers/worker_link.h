#pragma once

#include "genesis/training/v1/worker_service.pb.h"

namespace genesis {

// The daemon's end of one attached worker's stream. Thread-safe. Send never blocks.
class WorkerLink {
 public:
  virtual ~WorkerLink() = default;
  virtual void Send(const training::v1::AttachResponse& command) = 0;
  virtual void Close() = 0;
};

}  // namespace genesis
