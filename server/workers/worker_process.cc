#include "server/workers/worker_process.h"

#include <fcntl.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstring>
#include <fstream>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"

extern char** environ;

namespace genesis {
namespace {

struct WorkerStart {
  const WorkerProcess::Options* options;
  char* const* argv;
  pid_t daemon = 0;
  int failure = -1;  // The end of a pipe that receives errno if the program cannot be started.
};

// Runs in the child, a copy of one thread of the daemon, so it may only make system calls until
// exec. posix_spawn() cannot set PR_SET_PDEATHSIG. A worker that set it in main() would do so only
// after the dynamic linker has loaded LibTorch, which takes seconds.
[[noreturn]] void BecomeWorker(const WorkerStart& start) {
  const auto run = [&] {
    for (int signal = 1; signal < NSIG; ++signal) ::signal(signal, SIG_DFL);
    setpgid(0, 0);
    setpriority(PRIO_PROCESS, 0, start.options->nice);
    if (prctl(PR_SET_PDEATHSIG, SIGKILL) != 0) return;
    if (getppid() != start.daemon) _exit(1);  // The daemon ended before prctl took effect.
    const int input =
        start.options->input >= 0 ? start.options->input : open("/dev/null", O_RDONLY | O_CLOEXEC);
    const int log =
        open(start.options->log_path.c_str(), O_CREAT | O_WRONLY | O_APPEND | O_CLOEXEC, 0644);
    if (input < 0 || log < 0 || dup2(input, STDIN_FILENO) < 0 || dup2(log, STDOUT_FILENO) < 0 ||
        dup2(log, STDERR_FILENO) < 0) {
      return;
    }
    if (close_range(STDERR_FILENO + 1, ~0U, CLOSE_RANGE_CLOEXEC) != 0) return;
    sigset_t none;
    sigemptyset(&none);
    sigprocmask(SIG_SETMASK, &none, nullptr);
    execve(start.argv[0], start.argv, environ);
  };
  run();
  const int error = errno;
  [[maybe_unused]] const ssize_t written = write(start.failure, &error, sizeof(error));
  _exit(1);
}

// Returns the pid of the child, or -1 with errno set.
pid_t ForkWorker(WorkerStart start) {
  int failure[2];
  if (pipe2(failure, O_CLOEXEC) != 0) return -1;
  start.daemon = getpid();
  start.failure = failure[1];
  sigset_t all;
  sigset_t former;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &former);  // The daemon's handlers must not run in the child.
  const pid_t pid = _Fork();
  if (pid == 0) BecomeWorker(start);
  int error = errno;
  pthread_sigmask(SIG_SETMASK, &former, nullptr);
  close(failure[1]);
  ssize_t count = 0;
  if (pid > 0) {
    while ((count = read(failure[0], &error, sizeof(error))) < 0 && errno == EINTR) {
    }
  }
  close(failure[0]);
  if (pid > 0 && count <= 0) return pid;  // exec closed the pipe.
  if (pid > 0) waitpid(pid, nullptr, 0);
  errno = error;
  return -1;
}

}  // namespace

std::optional<int64_t> StartTicksOf(pid_t pid) {
  std::ifstream file(absl::StrCat("/proc/", pid, "/stat"));
  std::string stat;
  std::getline(file, stat);
  // The second field, the name, may contain spaces and parentheses.
  const size_t name_end = stat.rfind(')');
  if (name_end == std::string::npos) return std::nullopt;
  const std::vector<std::string> fields =
      absl::StrSplit(stat.substr(name_end + 1), ' ', absl::SkipEmpty());
  constexpr size_t kStartTicks = 22 - 3;  // The string starts at field 3.
  int64_t ticks = 0;
  if (fields.size() <= kStartTicks || !absl::SimpleAtoi(fields[kStartTicks], &ticks)) {
    return std::nullopt;
  }
  return ticks;
}

absl::StatusOr<WorkerProcess> WorkerProcess::Spawn(const std::string& program,
                                                   const std::vector<std::string>& args,
                                                   const Options& options) {
  std::vector<std::string> words = {program};
  words.insert(words.end(), args.begin(), args.end());
  std::vector<char*> argv;
  argv.reserve(words.size() + 1);
  for (std::string& word : words) argv.push_back(word.data());
  argv.push_back(nullptr);
  const pid_t pid = ForkWorker({.options = &options, .argv = argv.data()});
  if (pid < 0) {
    return absl::FailedPreconditionError(absl::StrCat("cannot start worker program ", program, ": ",
                                                      strerror(errno), "; check workers.program"));
  }
  // The child is not reaped yet, so its pid cannot have been reused.
  const int pidfd = static_cast<int>(syscall(SYS_pidfd_open, pid, 0));
  if (pidfd < 0) {
    const int pidfd_error = errno;
    kill(pid, SIGKILL);
    waitpid(pid, nullptr, 0);
    return absl::ResourceExhaustedError(
        absl::StrCat("cannot watch worker process ", pid, ": ", strerror(pidfd_error)));
  }
  return WorkerProcess(pid, pidfd, /*child=*/true);
}

absl::StatusOr<WorkerProcess> WorkerProcess::Adopt(pid_t pid, int64_t start_ticks) {
  const auto gone = [pid] {
    return absl::NotFoundError(absl::StrCat("worker process ", pid, " is gone"));
  };
  const int pidfd = static_cast<int>(syscall(SYS_pidfd_open, pid, 0));
  if (pidfd < 0) return gone();
  WorkerProcess process(pid, pidfd, /*child=*/false);
  // Check after the pidfd is open, so that the pid cannot be reused in between.
  if (process.start_ticks() != start_ticks) return gone();
  return process;
}

WorkerProcess::WorkerProcess(pid_t pid, int pidfd, bool child)
    : pid_(pid), pidfd_(pidfd), child_(child), start_ticks_(StartTicksOf(pid).value_or(0)) {}

WorkerProcess::WorkerProcess(WorkerProcess&& other) noexcept
    : pid_(other.pid_),
      pidfd_(std::exchange(other.pidfd_, -1)),
      child_(other.child_),
      start_ticks_(other.start_ticks_) {}

WorkerProcess::~WorkerProcess() {
  if (pidfd_ >= 0) close(pidfd_);
}

void WorkerProcess::Signal(int signal) const {
  syscall(SYS_pidfd_send_signal, pidfd_, signal, nullptr, 0);
}

ProcessExit WorkerProcess::Reap() const {
  ProcessExit exit;
  if (!child_) {
    exit.known = false;
    return exit;
  }
  int status = 0;
  rusage usage = {};
  while (wait4(pid_, &status, 0, &usage) < 0 && errno == EINTR) {
  }
  exit.peak_memory_bytes = int64_t{usage.ru_maxrss} * 1024;
  if (WIFEXITED(status)) exit.exit_code = WEXITSTATUS(status);
  if (WIFSIGNALED(status)) exit.signal = WTERMSIG(status);
  return exit;
}

}  // namespace genesis
