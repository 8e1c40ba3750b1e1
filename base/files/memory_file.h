#pragma once

#include <cstddef>
#include <memory>
#include <string_view>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace genesis {

// A file in memory that one process writes and seals (memfd_create(2)), so that other processes can
// map it and no process can change it.
//
// Owner: one. Threads: one until it is sealed, then any. Failure: the status of the system call;
// RESOURCE_EXHAUSTED without memory or file descriptors.
class MemoryFile {
 public:
  static absl::StatusOr<std::unique_ptr<MemoryFile>> Create();
  // Takes over the descriptor of a file that another process wrote, even on an error.
  // INVALID_ARGUMENT if that file is empty or not sealed.
  static absl::StatusOr<std::unique_ptr<MemoryFile>> Open(int descriptor);
  ~MemoryFile();
  MemoryFile(const MemoryFile&) = delete;
  MemoryFile& operator=(const MemoryFile&) = delete;

  // Appends. Writes with a system call, which spares the page faults and the zeroing of a mapping.
  absl::Status Write(const void* data, size_t size);
  // Seals the file, so that no process can change it. Requires that something was written.
  absl::Status Seal();

  int descriptor() const { return descriptor_; }
  // Returns the content. Requires that the file is sealed.
  std::string_view content() const { return content_; }

 private:
  explicit MemoryFile(int descriptor) : descriptor_(descriptor) {}
  absl::Status Map();

  const int descriptor_;
  std::string_view content_;
};

}  // namespace genesis
