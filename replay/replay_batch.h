#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "replay/file.h"
#include "replay/layout.h"
#include "replay/rows.h"

namespace genesis {

// A batch of one or more parts, before it is appended to a buffer. The newest parts, together up to
// kMaxHeldBytes, are in memory. Earlier parts are in a file without a name, which disappears with
// the batch or the process.
//
// Owner: a stream. Threads: one at a time. Failure: the statuses below and those of ReplayFile.
class ReplayBatch {
 public:
  struct Part {
    uint32_t count = 0;
    uint64_t body_size = 0;
    uint32_t body_checksum = 0;
    std::string record;   // Space for the header, then the body; empty if in the file.
    uint64_t offset = 0;  // Offset in the file.
  };
  static constexpr uint64_t kMaxHeldBytes = 8 << 20;

  // `folder` receives the file. It must exist if the parts together exceed kMaxHeldBytes.
  ReplayBatch(std::string id, std::string folder)
      : id_(std::move(id)), folder_(std::move(folder)) {}

  // Adds a part. INVALID_ARGUMENT if CheckRows refuses the rows, or the batch exceeds
  // kMaxBatchTransitions or kMaxBatchBytes.
  absl::Status Add(const ReplayLayout& layout, const ReplayRows& rows);

  const std::string& id() const { return id_; }
  const std::vector<Part>& parts() const { return parts_; }
  // Number of transitions.
  int64_t count() const { return count_; }
  // Size of the parts.
  uint64_t bytes() const { return bytes_; }
  // Moves out the record of a part: kRecordHeaderSize bytes for its header, and its body.
  absl::StatusOr<std::string> TakeRecord(size_t part);

 private:
  absl::Status WriteHeld();

  const std::string id_;
  const std::string folder_;
  std::vector<Part> parts_;
  int64_t count_ = 0;
  uint64_t bytes_ = 0;
  uint64_t held_ = 0;  // Bytes in memory.
  std::optional<ReplayFile> file_;
  uint64_t written_ = 0;  // Size of the file.
};

}  // namespace genesis
