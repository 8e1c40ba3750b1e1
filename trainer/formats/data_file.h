#pragma once

#include <sys/stat.h>

#include <cstdint>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace genesis {

// A regular file opened for random reads. CheckUnchanged fails if its size or modification time has
// changed since it was opened.
//
// Owner: shared by its readers. Threads: any. Failure: NOT_FOUND, PERMISSION_DENIED,
// INVALID_ARGUMENT if it is not a regular file or is a symbolic link (ResolveJobFiles resolves
// those), DATA_LOSS if it is shorter or has changed.
class DataFile {
 public:
  static absl::StatusOr<std::shared_ptr<const DataFile>> Open(const std::string& path);
  ~DataFile();
  DataFile(const DataFile&) = delete;
  DataFile& operator=(const DataFile&) = delete;

  uint64_t size() const { return static_cast<uint64_t>(opened_.st_size); }
  const std::string& path() const { return path_; }
  // Returns the name without the folder.
  std::string name() const;

  // Copies bytes [offset, offset + size).
  absl::Status Read(uint64_t offset, uint64_t size, void* out) const;
  absl::Status CheckUnchanged() const;
  // Returns "; it begins like a gzip file" for a common kind, "; it is empty", or else "".
  std::string LooksLike() const;

 private:
  DataFile(std::string path, int fd) : path_(std::move(path)), fd_(fd) {}

  const std::string path_;
  const int fd_;
  struct stat opened_ {};
};

// Maximum length of a message about a file, in bytes.
inline constexpr size_t kMaxFileFault = 2000;

// Returns `fault` with a message that protobuf and terminals accept regardless of the file's
// content: valid UTF-8 on one line of at most kMaxFileFault bytes.
absl::Status FitFileFault(const absl::Status& fault);

}  // namespace genesis
