#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "server/checkpoints/checkpoint_files.h"

namespace genesis {

// One file of a checkpoint being imported: written to a temporary file, compared with the
// announcement, read by another process, and only then given its name. Counts as an import while it
// lives. The destructor removes an unpublished file.
//
// Owner: a call. Threads: one at a time; blocking methods belong on the threads of CheckpointFiles.
class CheckpointImport {
 public:
  struct Announced {
    std::string id;
    int64_t size_bytes = 0;
    std::optional<uint32_t> crc32c;
  };
  // INVALID_ARGUMENT for an invalid id or size, and the statuses of BeginImport. Does not block.
  static absl::StatusOr<std::shared_ptr<CheckpointImport>> Begin(CheckpointFiles* files,
                                                                 const Announced& announced);
  ~CheckpointImport();
  CheckpointImport(const CheckpointImport&) = delete;
  CheckpointImport& operator=(const CheckpointImport&) = delete;

  // Blocks on the disk. INVALID_ARGUMENT for more bytes than announced, RESOURCE_EXHAUSTED for a
  // full disk.
  absl::Status Write(absl::string_view content);
  // Called after the last piece. Blocks until the file is durable and another process has read it.
  // INVALID_ARGUMENT if it differs from the announcement or is not a checkpoint; ALREADY_EXISTS if
  // the name is taken.
  absl::StatusOr<training::v1::Checkpoint> Publish();
  // Undoes Publish.
  void Withdraw();
  // Releases the place and the id, and removes an unpublished file. Called before the client gets
  // its response, so that it can reuse the id immediately.
  void End();

 private:
  CheckpointImport(CheckpointFiles* files, const Announced& announced);

  absl::Status CheckWhole() const;

  CheckpointFiles* const files_;
  const Announced announced_;
  const std::string path_;       // Final path.
  const std::string temporary_;  // Path until then.
  FileHandle file_;
  int64_t size_ = 0;
  uint32_t crc32c_ = 0;
  bool ended_ = false;
};

}  // namespace genesis
