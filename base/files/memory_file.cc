#include "base/files/memory_file.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>

#include "base/files/errno_status.h"

namespace genesis {
namespace {

constexpr int kSeals = F_SEAL_WRITE | F_SEAL_GROW | F_SEAL_SHRINK;

absl::Status MemoryFailed(const char* call) {
  if (errno == ENOMEM)
    return absl::ResourceExhaustedError(std::string(call) + ": no memory left; free some there");
  return ErrnoStatus(call, errno, "free memory there");
}

}  // namespace

absl::StatusOr<std::unique_ptr<MemoryFile>> MemoryFile::Create() {
  const int descriptor = memfd_create("genesis-weights", MFD_CLOEXEC | MFD_ALLOW_SEALING);
  if (descriptor < 0) return MemoryFailed("memfd_create");
  return std::unique_ptr<MemoryFile>(new MemoryFile(descriptor));
}

absl::StatusOr<std::unique_ptr<MemoryFile>> MemoryFile::Open(int descriptor) {
  std::unique_ptr<MemoryFile> file(new MemoryFile(descriptor));
  if ((fcntl(descriptor, F_GET_SEALS) & kSeals) != kSeals) {
    return absl::InvalidArgumentError(
        "the file is not sealed; accepted: a file of memfd_create(2) with F_SEAL_WRITE, "
        "F_SEAL_GROW and F_SEAL_SHRINK");
  }
  if (absl::Status mapped = file->Map(); !mapped.ok()) return mapped;
  return file;
}

MemoryFile::~MemoryFile() {
  if (!content_.empty()) munmap(const_cast<char*>(content_.data()), content_.size());
  close(descriptor_);
}

absl::Status MemoryFile::Write(const void* data, size_t size) {
  const char* at = static_cast<const char*>(data);
  while (size > 0) {
    const ssize_t written = write(descriptor_, at, size);
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) return MemoryFailed("write to memory");
    at += written;
    size -= static_cast<size_t>(written);
  }
  return absl::OkStatus();
}

absl::Status MemoryFile::Seal() {
  if (fcntl(descriptor_, F_ADD_SEALS, kSeals | F_SEAL_SEAL) != 0)
    return MemoryFailed("F_ADD_SEALS");
  return Map();
}

absl::Status MemoryFile::Map() {
  struct stat info = {};
  if (fstat(descriptor_, &info) != 0) return MemoryFailed("fstat");
  const auto size = static_cast<size_t>(info.st_size);
  if (size == 0) return absl::InvalidArgumentError("the file is empty; accepted: 1 byte or more");
  void* const memory = mmap(nullptr, size, PROT_READ, MAP_SHARED, descriptor_, 0);
  if (memory == MAP_FAILED) return MemoryFailed("mmap");
  content_ = {static_cast<const char*>(memory), size};
  return absl::OkStatus();
}

}  // namespace genesis
