#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "server/checkpoints/checkpoint_files.h"

namespace genesis {

// One file of a checkpoint that is being taken: written to a temporary file, compared with what was
// announced, read by another process, and only then given its name. Counts as an import while it
// lives; what was not published is removed with it.
//
// Owner: a call. Threads: one at a time; what waits belongs on the threads of CheckpointFiles.
class CheckpointImport {
 public:
  struct Announced {
    std::string id;
    int64_t size_bytes = 0;
    std::optional<uint32_t> crc32c;
  };
  // INVALID_ARGUMENT for an id or a size that is none, and the statuses of BeginImport. Does not
  // wait.
  static absl::StatusOr<std::shared_ptr<CheckpointImport>> Begin(CheckpointFiles* files,
                                                                 const Announced& announced);
  ~CheckpointImport();
  CheckpointImport(const CheckpointImport&) = delete;
  CheckpointImport& operator=(const CheckpointImport&) = delete;

  // Waits for the disk. INVALID_ARGUMENT for more than was announced, RESOURCE_EXHAUSTED for a full
  // disk.
  absl::Status Write(absl::string_view content);
  // After the last piece. Waits until the file is durable and another process has read it.
  // INVALID_ARGUMENT when it is not what was announced or no checkpoint; ALREADY_EXISTS when a file
  // has the name.
  absl::StatusOr<training::v1::Checkpoint> Publish();
  // Takes back what Publish did.
  void Withdraw();
  // Gives up the place and the id, and removes what was not published; before the caller hears of
  // it, so that the id is free when the same is sent again.
  void End();

 private:
  CheckpointImport(CheckpointFiles* files, const Announced& announced);

  absl::Status CheckWhole() const;

  CheckpointFiles* const files_;
  const Announced announced_;
  const std::string path_;       // What it will be called.
  const std::string temporary_;  // What it is called until then.
  FileHandle file_;
  int64_t size_ = 0;
  uint32_t crc32c_ = 0;
  bool ended_ = false;
};

}  // namespace genesis
