#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "server/checkpoints/checkpoint_files.h"

namespace genesis {

// A checkpoint file that is being sent, piece by piece. Counts as a download while it exists.
//
// Owner: a call. Threads: one at a time; run blocking methods on the threads of CheckpointFiles.
class CheckpointDownload {
 public:
  // Reserves a download without blocking. RESOURCE_EXHAUSTED if no slot is free, OUT_OF_RANGE if
  // `offset` is not between 0 and the file's size, FAILED_PRECONDITION for a sharded checkpoint.
  static absl::StatusOr<std::shared_ptr<CheckpointDownload>> Begin(
      CheckpointFiles* files, const training::v1::Checkpoint& checkpoint, int64_t offset);
  ~CheckpointDownload() { files_->EndDownload(); }
  CheckpointDownload(const CheckpointDownload&) = delete;
  CheckpointDownload& operator=(const CheckpointDownload&) = delete;

  const training::v1::Checkpoint& checkpoint() const { return checkpoint_; }
  // Ends the download before byte `end` of the file.
  void StopAt(int64_t end) { end_ = end; }

  // Opens the file; blocks on the disk. DATA_LOSS if it is gone or of another size than recorded.
  absl::Status Open();
  // Blocks on the disk. Returns at most `most` bytes; "" at the end. DATA_LOSS if too few are left.
  absl::StatusOr<std::string> Read(int64_t most);

 private:
  CheckpointDownload(CheckpointFiles* files, const training::v1::Checkpoint& checkpoint,
                     int64_t offset)
      : files_(files), checkpoint_(checkpoint), at_(offset), end_(checkpoint.size_bytes()) {}

  CheckpointFiles* const files_;
  const training::v1::Checkpoint checkpoint_;
  int64_t at_;
  int64_t end_;
  FileHandle file_;
};

}  // namespace genesis
