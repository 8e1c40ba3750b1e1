#include "server/store/data_dir.h"

#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "base/steady_time.h"

namespace genesis {
namespace {

// Space that the store needs to start: write-ahead log, a few pages, and the log file.
constexpr size_t kProbeBytes = size_t{1024} * 1024;

absl::Status DirError(const std::string& path, const std::string& what, int error) {
  const std::string message = absl::StrCat("data folder ", path, ": ", what, ": ", strerror(error));
  if (error == ENOSPC || error == EDQUOT) {
    return absl::ResourceExhaustedError(
        absl::StrCat(message,
                     "; genesisd needs at least 1 MiB to start: free some space, or choose "
                     "another folder with --data-dir"));
  }
  return absl::FailedPreconditionError(
      absl::StrCat(message, "; choose another folder with --data-dir, or fix its permissions"));
}

// Returns the ID of the process that last took the lock, from the file; "" if it has none.
std::string ReadHolder(int fd) {
  char text[32] = {};
  const ssize_t size = pread(fd, text, sizeof(text) - 1, 0);
  return size > 0 ? std::string(text, size) : "";
}

// Returns true if the process is gone or a zombie, which runs no program any more.
bool HasEnded(const std::string& pid) {
  char ignored = 0;
  return readlink(absl::StrCat("/proc/", pid, "/exe").c_str(), &ignored, 1) < 0 && errno == ENOENT;
}

// Takes the lock. Waits up to 5 s if the process that took it is dead: when a daemon is killed
// while it forks a worker, the forked copy still holds the lock, but exits immediately.
absl::Status Lock(int fd, int holder_fd, const std::string& path) {
  const absl::Time patience = SteadyNow() + absl::Seconds(5);
  while (flock(fd, LOCK_EX | LOCK_NB) != 0) {
    if (errno != EWOULDBLOCK) return DirError(path, "cannot lock it", errno);
    const std::string holder = ReadHolder(holder_fd);
    if (holder.empty() || !HasEnded(holder) || SteadyNow() > patience) {
      return absl::AlreadyExistsError(
          absl::StrCat("data folder ", path, " is in use by another genesisd",
                       holder.empty() ? "" : absl::StrCat(" (process ", holder, ")"),
                       "; stop it, or choose another folder with --data-dir"));
    }
    absl::SleepFor(absl::Milliseconds(10));
  }
  return absl::OkStatus();
}

// Writes and removes a file, so that a full disk is detected before a job is accepted.
absl::Status ProbeSpace(const std::string& path) {
  const std::string probe = path + "/.space-probe";
  const int fd = open(probe.c_str(), O_CREAT | O_WRONLY | O_TRUNC | O_CLOEXEC, 0600);
  if (fd < 0) return DirError(path, "cannot create a file", errno);
  const std::vector<char> zeros(kProbeBytes);
  size_t written = 0;
  int error = 0;
  while (error == 0 && written < zeros.size()) {
    const ssize_t n = write(fd, zeros.data() + written, zeros.size() - written);
    if (n < 0) {
      error = errno;
    } else {
      written += static_cast<size_t>(n);
    }
  }
  if (error == 0 && fsync(fd) != 0) error = errno;
  close(fd);
  unlink(probe.c_str());
  return error == 0 ? absl::OkStatus() : DirError(path, "cannot write", error);
}

}  // namespace

absl::StatusOr<std::unique_ptr<DataDir>> DataDir::Acquire(const std::string& path) {
  std::error_code error;
  std::filesystem::create_directories(path, error);
  if (error) return DirError(path, "cannot create it", error.value());
  const std::string lock_path = path + "/genesisd.lock";
  const int fd = open(lock_path.c_str(), O_CREAT | O_RDWR | O_CLOEXEC, 0644);
  if (fd < 0) return DirError(path, "cannot open genesisd.lock", errno);
  const int folder = open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  const int folder_error = errno;
  std::unique_ptr<DataDir> dir(new DataDir(fd, folder));
  if (folder < 0) return DirError(path, "cannot open it", folder_error);
  for (const int each : {fd, folder}) {
    if (absl::Status locked = Lock(each, fd, path); !locked.ok()) return locked;
  }
  const absl::Status space = ProbeSpace(path);
  if (!space.ok()) return space;
  const std::string pid = absl::StrCat(getpid());
  if (ftruncate(fd, 0) != 0 || pwrite(fd, pid.data(), pid.size(), 0) < 0) {
    return DirError(path, "cannot write genesisd.lock", errno);
  }
  return dir;
}

DataDir::~DataDir() {
  close(lock_fd_);
  if (folder_fd_ >= 0) close(folder_fd_);
}

}  // namespace genesis
