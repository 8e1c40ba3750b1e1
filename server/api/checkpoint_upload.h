#pragma once

#include <functional>
#include <memory>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "server/base/callback.h"
#include "server/checkpoints/checkpoint_import.h"
#include "server/jobs/job_manager.h"

namespace genesis {

// ImportCheckpoint for every transport. Writes the file piece by piece, then publishes it and
// records the checkpoint.
//
// Owner: a call. Threads: one call at a time; callbacks run on threads of CheckpointFiles or of the
// writer, perhaps after the owner is gone. Failure: the statuses of ImportCheckpoint in the proto.
class CheckpointUpload {
 public:
  // The checkpoint will belong to `owner`.
  CheckpointUpload(JobManager* jobs, CheckpointFiles* files, std::string owner)
      : jobs_(jobs), files_(files), owner_(std::move(owner)) {}

  bool begun() const { return import_ != nullptr; }
  absl::Status Begin(const CheckpointImport::Announced& announced);
  void Write(std::string content, std::function<void(const absl::Status&)> done);
  void Finish(const Callback<training::v1::Checkpoint>& callback);

 private:
  JobManager* const jobs_;
  CheckpointFiles* const files_;
  const std::string owner_;
  std::shared_ptr<CheckpointImport> import_;
};

}  // namespace genesis
