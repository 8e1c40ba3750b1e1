#pragma once

#include <sys/types.h>

#include <string>
#include <vector>

#include "absl/status/statusor.h"

namespace genesis {

// How a worker process ended.
struct ProcessExit {
  int exit_code = -1;  // -1 when a signal ended it.
  int signal = 0;
};

// A child process of the daemon, watched by its pidfd. Used by one thread.
class WorkerProcess {
 public:
  // Starts `program` with `args` by posix_spawn: own process group (a Ctrl-C on the daemon is the
  // daemon's to act on), default signals, no inherited handles, output to `log_path`, and a lower
  // scheduling priority than the daemon's, so that RPCs answer while every core trains.
  static absl::StatusOr<WorkerProcess> Spawn(const std::string& program,
                                             const std::vector<std::string>& args,
                                             const std::string& log_path);
  WorkerProcess(WorkerProcess&& other) noexcept;
  WorkerProcess& operator=(WorkerProcess&&) = delete;
  ~WorkerProcess();  // Does not end the process.

  pid_t pid() const { return pid_; }
  // Readable once the process has ended.
  int pidfd() const { return pidfd_; }
  void Signal(int signal) const;
  // Waits for the end and takes the exit status.
  ProcessExit Reap() const;

 private:
  WorkerProcess(pid_t pid, int pidfd) : pid_(pid), pidfd_(pidfd) {}
  pid_t pid_;
  int pidfd_;
};

}  // namespace genesis
