#pragma once

#include <sys/types.h>

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"

namespace genesis {

// The way a worker process ended.
struct ProcessExit {
  int exit_code = -1;  // -1 if a signal ended it, or if unknown.
  int signal = 0;
  // False if the process is not a child of this daemon, so that its status is not available.
  bool known = true;
  int64_t peak_memory_bytes = 0;  // Resident; 0 if unknown.
};

// Returns field 22 of /proc/<pid>/stat, which distinguishes a process from a later one with the
// same pid; nullopt if there is no such process.
std::optional<int64_t> StartTicksOf(pid_t pid);

// A worker process, watched by its pidfd: a child of the daemon, or one started by an earlier
// daemon. Thread-safe, except Reap, which one thread calls once.
class WorkerProcess {
 public:
  struct Options {
    std::string log_path;  // Takes its output.
    int input = -1;        // Descriptor of its standard input; -1 for /dev/null.
    // Scheduling priority (setpriority(2)), lower than the daemon's 0, so that RPCs are served
    // while every core trains.
    int nice = 10;
  };
  // Starts `program` with `args`, in its own process group (so that Ctrl-C reaches only the
  // daemon), with default signals and no other inherited handles. Until the process clears
  // PR_SET_PDEATHSIG (prctl(2)), the kernel kills it when the calling thread ends.
  static absl::StatusOr<WorkerProcess> Spawn(const std::string& program,
                                             const std::vector<std::string>& args,
                                             const Options& options);
  // Returns the process `pid` if it began at `start_ticks`. NOT_FOUND if it is gone.
  static absl::StatusOr<WorkerProcess> Adopt(pid_t pid, int64_t start_ticks);
  WorkerProcess(WorkerProcess&& other) noexcept;
  WorkerProcess& operator=(WorkerProcess&&) = delete;
  ~WorkerProcess();  // Does not end the process.

  pid_t pid() const { return pid_; }
  int64_t start_ticks() const { return start_ticks_; }
  // Readable once the process has ended.
  int pidfd() const { return pidfd_; }
  void Signal(int signal) const;
  // Waits for a child to end and returns its exit. Returns an unknown exit for any other process.
  ProcessExit Reap() const;

 private:
  WorkerProcess(pid_t pid, int pidfd, bool child);
  pid_t pid_;
  int pidfd_;
  bool child_;
  int64_t start_ticks_;
};

}  // namespace genesis
