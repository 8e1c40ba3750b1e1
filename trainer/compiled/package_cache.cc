#include "trainer/compiled/package_cache.h"

#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <fstream>
#include <iterator>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "base/files/sha256.h"

namespace genesis {
namespace {

absl::Status CheckPrivate(const std::string& path) {
  struct stat status = {};
  if (stat(path.c_str(), &status) != 0) {
    return errno == ENOENT || errno == ENOTDIR
               ? absl::NotFoundError(absl::StrCat(path, " does not exist"))
               : absl::ErrnoToStatus(errno, absl::StrCat(path, " cannot be looked at"));
  }
  if (status.st_uid != 0 && status.st_uid != geteuid()) {
    return absl::PermissionDeniedError(
        absl::StrCat(path, " belongs to user ", status.st_uid, "; accepted: root and user ",
                     geteuid(), ", who runs the worker, for a package is a program"));
  }
  constexpr mode_t kOthersWrite = S_IWGRP | S_IWOTH;
  if ((status.st_mode & kOthersWrite) != 0) {
    return absl::PermissionDeniedError(absl::StrFormat(
        "%s has mode %04o, so others may write it; a package is a program: chmod go-w %s", path,
        status.st_mode & 07777U, path));
  }
  return absl::OkStatus();
}

std::string ReadAll(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

}  // namespace

absl::StatusOr<std::string> FindPackage(const std::string& folder, const std::string& key) {
  const std::string name = absl::StrCat(key, ".pt2");
  const std::string path = absl::StrCat(folder, "/", name);
  const std::string sum = absl::StrCat(path, ".sha256");
  absl::Status status = CheckPrivate(folder);
  if (status.ok()) status = CheckPrivate(path);
  if (!status.ok()) return status;
  if (status = CheckPrivate(sum); !status.ok()) {
    return !absl::IsNotFound(status)
               ? status
               : absl::DataLossError(absl::StrCat(path, " is unfinished: ", status.message()));
  }
  const std::string wanted = ReadAll(sum);
  const std::string found = absl::StrCat(Sha256HexOfFile(path), "  ", name, "\n");
  if (found == wanted) return path;
  return absl::DataLossError(
      absl::StrCat(path, " is damaged: its SHA-256 is not the one in ", sum));
}

}  // namespace genesis
