#pragma once

#include <grpcpp/grpcpp.h>

#include <memory>
#include <string>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/synchronization/mutex.h"
#include "base/files/memory_file.h"
#include "client/channel.h"
#include "genesis/training/v1/worker_service.pb.h"

namespace genesis {

// The path of published weights to the daemon: on the daemon's host, a descriptor of their file,
// which no process copies; from other hosts, a stream of pieces.
//
// Owner: the link to the daemon. Threads: any calls SetSocket, one calls Send.
class WeightsLink {
 public:
  explicit WeightsLink(DaemonAddress daemon) : daemon_(std::move(daemon)) {}

  // Sets PublishWeights.socket.
  void SetSocket(const std::string& path) {
    const absl::MutexLock lock(&mutex_);
    socket_ = path;
  }
  // Returns once the daemon has accepted the weights. Returns its status if it rejects them, and
  // UNAVAILABLE or DEADLINE_EXCEEDED if it does not respond.
  absl::Status Send(const training::v1::PublishedWeights& weights, const MemoryFile& file);

 private:
  absl::Status PassOn(const training::v1::PublishedWeights& weights, const MemoryFile& file) const;
  absl::Status Stream(const training::v1::PublishedWeights& weights, const MemoryFile& file);

  const DaemonAddress daemon_;
  std::shared_ptr<grpc::Channel> channel_;  // Null before the first stream.
  mutable absl::Mutex mutex_;
  std::string socket_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace genesis
