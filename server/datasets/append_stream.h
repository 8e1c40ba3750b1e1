#pragma once

#include <functional>
#include <optional>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "genesis/training/v1/training_service.pb.h"
#include "metrics/metrics.h"
#include "server/datasets/replay_store.h"

namespace genesis {

// AppendTrajectories for every transport: one stream of batches for one dataset.
//
// Owner: a call. Threads: one at a time; Append blocks on the disk, so run it on the
// threads of ReplayStore. Failure: the statuses documented in the proto for
// AppendTrajectories. An error ends the stream.
class AppendStream {
 public:
  AppendStream(ReplayStore* store, Metrics* metrics, Caller caller)
      : store_(store), metrics_(metrics), caller_(std::move(caller)) {}
  ~AppendStream();
  AppendStream(const AppendStream&) = delete;
  AppendStream& operator=(const AppendStream&) = delete;

  // Reserves a stream. RESOURCE_EXHAUSTED if there are too many.
  absl::Status Begin();
  // Takes one message. If the batch does not continue, it is durable when OK is returned.
  absl::Status Append(const training::v1::AppendTrajectoriesRequest& request);
  // Called after the client's last message. INVALID_ARGUMENT if there was none, or a batch
  // continues.
  absl::Status End() const;

  // Returns the summary of the batches appended so far.
  const training::v1::AppendTrajectoriesResponse& response() const { return response_; }
  // Returns the name of the dataset; "" before the first message.
  std::string dataset() const { return target_ ? target_->dataset : ""; }

 private:
  absl::Status ReadFirst(const training::v1::AppendTrajectoriesRequest& first);
  absl::Status Add(const training::v1::AppendTrajectoriesRequest& request, const ReplayRows& rows);

  ReplayStore* const store_;
  Metrics* const metrics_;
  const Caller caller_;
  bool begun_ = false;
  std::optional<AppendTarget> target_;
  std::optional<ReplayBatch> batch_;  // A batch that continues in the next message.
  training::v1::AppendTrajectoriesResponse response_;
};

}  // namespace genesis
