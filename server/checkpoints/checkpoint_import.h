#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "server/checkpoints/checkpoint_files.h"

namespace genesis {

// A checkpoint file being imported: it is written to a temporary file, compared with the
// announcement, verified by another process, and only then given its name. Counts as an import
// while it exists. The destructor removes an unpublished file.
//
// Owner: a call. Threads: one at a time; run blocking methods on the threads of CheckpointFiles.
class CheckpointImport {
 public:
  struct Announced {
    std::string id;
    int64_t size_bytes = 0;
    std::optional<uint32_t> crc32c;
  };
  // INVALID_ARGUMENT for an invalid ID or size, or a status of BeginImport. Does not block.
  static absl::StatusOr<std::shared_ptr<CheckpointImport>> Begin(CheckpointFiles* files,
                                                                 const Announced& announced);
  ~CheckpointImport();
  CheckpointImport(const CheckpointImport&) = delete;
  CheckpointImport& operator=(const CheckpointImport&) = delete;

  // Blocks on the disk. INVALID_ARGUMENT if more bytes arrive than announced,
  // RESOURCE_EXHAUSTED if the disk is full.
  absl::Status Write(absl::string_view content);
  // Called after the last piece. Blocks until the file is durable and another process has verified
  // it. INVALID_ARGUMENT if it differs from the announcement or is not a checkpoint; ALREADY_EXISTS
  // if the name is taken.
  absl::StatusOr<training::v1::Checkpoint> Publish();
  // Removes the file that Publish has created.
  void Withdraw();
  // Releases the import and the ID, and removes an unpublished file. Called before the client gets
  // its response, so that the client can reuse the ID immediately.
  void End();

 private:
  CheckpointImport(CheckpointFiles* files, const Announced& announced);

  absl::Status CheckWhole() const;

  CheckpointFiles* const files_;
  const Announced announced_;
  const std::string path_;       // Path after Publish.
  const std::string temporary_;  // Path before Publish.
  FileHandle file_;
  int64_t size_ = 0;
  uint32_t crc32c_ = 0;
  bool ended_ = false;
};

}  // namespace genesis
