#pragma once

#include <sys/stat.h>

#include <cstdint>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace genesis {

// A regular file opened for reading at any place. Its content is what was there when the file was
// opened: a later change of its size or time of change is an error, not other data.
//
// Owner: shared by who reads it. Threads: any. Failure: NOT_FOUND, PERMISSION_DENIED,
// INVALID_ARGUMENT for what is no regular file, a link included (ResolveJobFiles follows those),
// DATA_LOSS when it is shorter or has changed.
class DataFile {
 public:
  static absl::StatusOr<std::shared_ptr<const DataFile>> Open(const std::string& path);
  ~DataFile();
  DataFile(const DataFile&) = delete;
  DataFile& operator=(const DataFile&) = delete;

  uint64_t size() const { return static_cast<uint64_t>(opened_.st_size); }
  const std::string& path() const { return path_; }
  // Without its folder.
  std::string name() const;

  // Copies bytes [offset, offset + size).
  absl::Status Read(uint64_t offset, uint64_t size, void* out) const;
  absl::Status CheckUnchanged() const;
  // "; it begins like a zip file" for one that was taken for another kind; "" when not known.
  std::string LooksLike() const;

 private:
  DataFile(std::string path, int fd) : path_(std::move(path)), fd_(fd) {}

  const std::string path_;
  const int fd_;
  struct stat opened_ {};
};

// The longest message on a file. Bytes.
inline constexpr size_t kMaxFileFault = 2000;

// `fault` with a message that protobuf and terminals take, whatever the file held: valid UTF-8 on
// one line of at most kMaxFileFault bytes.
absl::Status FitFileFault(const absl::Status& fault);

}  // namespace genesis
