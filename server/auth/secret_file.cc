#include "server/auth/secret_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "absl/cleanup/cleanup.h"
#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"

namespace genesis {
namespace {

constexpr off_t kMaxBytes = off_t{1024} * 1024;
// Refused mode bits: write access of group and others and, for secrets, any access of others.
constexpr mode_t kOthersWrite = 0022;
constexpr mode_t kOthersUse = 0027;

absl::Status OpenError(const std::string& place) {
  const int error = errno;
  if (error == ENOENT) {
    return absl::NotFoundError(absl::StrCat(place, ": no such file; check the path"));
  }
  if (error == EACCES) {
    return absl::PermissionDeniedError(
        absl::StrCat(place, ": may not be read; give this user read permission"));
  }
  return absl::InvalidArgumentError(
      absl::StrCat(place, ": ", strerror(error), "; accepted: a file that can be read"));
}

absl::StatusOr<std::string> ReadAll(int fd, const std::string& place) {
  std::string text;
  char buffer[4096];
  for (;;) {
    const ssize_t count = read(fd, buffer, sizeof(buffer));
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) return OpenError(place);
    if (count == 0) return text;
    text.append(buffer, static_cast<size_t>(count));
    if (text.size() > kMaxBytes) {
      return absl::InvalidArgumentError(
          absl::StrCat(place, ": larger than 1 MiB; name the right file"));
    }
  }
}

absl::StatusOr<std::string> Read(const std::string& key, const std::string& path, mode_t too_wide) {
  const std::string place = absl::StrCat(key, ": ", path);
  // O_NONBLOCK, so that a pipe in place of the file cannot block.
  const int fd = open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (fd < 0) return OpenError(place);
  const absl::Cleanup close_it = [fd] { close(fd); };
  struct stat info = {};
  if (fstat(fd, &info) != 0) return OpenError(place);
  if (!S_ISREG(info.st_mode)) {
    return absl::InvalidArgumentError(absl::StrCat(place, ": no regular file; check the path"));
  }
  if ((info.st_mode & too_wide) != 0) {
    const bool secret = too_wide == kOthersUse;
    return absl::InvalidArgumentError(absl::StrFormat(
        "%s: has mode 0%o, so that others may %s it; accepted: %s or narrower; run chmod %s %s, "
        "and replace what it holds if it was %s",
        place, info.st_mode & 07777, secret ? "read or change" : "change", secret ? "0640" : "0644",
        secret ? "0600" : "0644", path, secret ? "read" : "changed"));
  }
  return ReadAll(fd, place);
}

}  // namespace

absl::StatusOr<std::string> ReadSettingFile(const std::string& key, const std::string& path) {
  return Read(key, path, /*too_wide=*/0);
}

absl::StatusOr<std::string> ReadTrustedFile(const std::string& key, const std::string& path) {
  return Read(key, path, kOthersWrite);
}

absl::StatusOr<std::string> ReadSecretFile(const std::string& key, const std::string& path) {
  return Read(key, path, kOthersUse);
}

}  // namespace genesis
