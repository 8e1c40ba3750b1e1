#include "trainer/formats/data_file.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "base/files/errno_status.h"
#include "base/text/text.h"

namespace genesis {

absl::StatusOr<std::shared_ptr<const DataFile>> DataFile::Open(const std::string& path) {
  // Without O_NONBLOCK, opening a named pipe would wait for a writer.
  const int fd = open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOFOLLOW);
  if (fd < 0) {
    const int error = errno;
    if (error == ELOOP) {
      return absl::InvalidArgumentError(
          absl::StrCat(path, ": is a link; accepted: a regular file"));
    }
    return ErrnoStatus(absl::StrCat(path, ": cannot be opened"), error);
  }
  std::shared_ptr<DataFile> file(new DataFile(path, fd));
  if (fstat(fd, &file->opened_) != 0 || !S_ISREG(file->opened_.st_mode)) {
    return absl::InvalidArgumentError(absl::StrCat(path, ": is not a regular file"));
  }
  return file;
}

DataFile::~DataFile() { close(fd_); }

std::string DataFile::name() const { return std::filesystem::path(path_).filename().string(); }

absl::Status DataFile::Read(uint64_t offset, uint64_t size, void* out) const {
  if (offset > this->size() || size > this->size() - offset) {
    return absl::DataLossError(absl::StrCat(path_, ": ", size, " bytes at ", offset,
                                            " lie outside the file of ", this->size(), " bytes"));
  }
  char* at = static_cast<char*>(out);
  while (size > 0) {
    const ssize_t got = pread(fd_, at, size, static_cast<off_t>(offset));
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) {
      return absl::DataLossError(absl::StrCat(path_, ": reading ", size, " bytes at ", offset,
                                              " failed: ", std::strerror(errno)));
    }
    if (got == 0) {
      return absl::DataLossError(absl::StrCat(path_, ": was cut off while it was in use, before ",
                                              offset, " bytes; start the job again"));
    }
    at += got;
    offset += static_cast<uint64_t>(got);
    size -= static_cast<uint64_t>(got);
  }
  return absl::OkStatus();
}

std::string DataFile::LooksLike() const {
  std::string begin(std::min<uint64_t>(size(), 16), '\0');
  if (begin.empty()) return "; it is empty";
  if (!Read(0, begin.size(), begin.data()).ok()) return "";
  constexpr std::pair<absl::string_view, const char*> kKinds[] = {
      {"PK\x03\x04", "a zip file (.npz, .pt)"},
      {"\x93NUMPY", "a NumPy array (.npy)"},
      {"\x89HDF", "an HDF5 file"},
      {"\x1f\x8b", "a gzip file"},
      {"PAR1", "a Parquet file"},
      {"\x80\x02", "a pickle"},
      {"\x80\x04", "a pickle"},
      {"\x80\x05", "a pickle"}};
  for (const auto& [magic, kind] : kKinds) {
    if (absl::StartsWith(begin, magic)) return absl::StrCat("; it begins like ", kind);
  }
  // A safetensors file begins with a header length of 8 bytes, then JSON.
  if (begin.size() > 8 && begin[8] == '{') return "; it begins like a safetensors file";
  return "";
}

absl::Status FitFileFault(const absl::Status& fault) {
  if (fault.ok()) return fault;
  return absl::Status(fault.code(), OneLine(fault.message(), kMaxFileFault));
}

absl::Status DataFile::CheckUnchanged() const {
  struct stat now {};
  const bool same = fstat(fd_, &now) == 0 && now.st_size == opened_.st_size &&
                    now.st_mtim.tv_sec == opened_.st_mtim.tv_sec &&
                    now.st_mtim.tv_nsec == opened_.st_mtim.tv_nsec;
  if (same) return absl::OkStatus();
  return absl::DataLossError(absl::StrCat(
      path_,
      ": was changed while it was in use; write new data to a new file, and start the job again"));
}

}  // namespace genesis
