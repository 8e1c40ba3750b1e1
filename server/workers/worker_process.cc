#include "server/workers/worker_process.h"

#include <fcntl.h>
#include <spawn.h>
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

constexpr int kNice = 10;

// Attributes and file actions of one spawn, freed together.
struct SpawnSetup {
  SpawnSetup() {
    posix_spawnattr_init(&attributes);
    posix_spawn_file_actions_init(&actions);
  }
  ~SpawnSetup() {
    posix_spawn_file_actions_destroy(&actions);
    posix_spawnattr_destroy(&attributes);
  }
  SpawnSetup(const SpawnSetup&) = delete;
  SpawnSetup& operator=(const SpawnSetup&) = delete;

  posix_spawnattr_t attributes;
  posix_spawn_file_actions_t actions;
};

void Configure(SpawnSetup& setup, const std::string& log_path) {
  sigset_t none;
  sigset_t all;
  sigemptyset(&none);
  sigfillset(&all);
  posix_spawnattr_setsigmask(&setup.attributes, &none);
  posix_spawnattr_setsigdefault(&setup.attributes, &all);
  posix_spawnattr_setpgroup(&setup.attributes, 0);
  posix_spawnattr_setflags(&setup.attributes,
                           POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF | POSIX_SPAWN_SETPGROUP);
  posix_spawn_file_actions_addopen(&setup.actions, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
  posix_spawn_file_actions_addopen(&setup.actions, STDOUT_FILENO, log_path.c_str(),
                                   O_CREAT | O_WRONLY | O_APPEND, 0644);
  posix_spawn_file_actions_adddup2(&setup.actions, STDOUT_FILENO, STDERR_FILENO);
  posix_spawn_file_actions_addclosefrom_np(&setup.actions, STDERR_FILENO + 1);
}

}  // namespace

std::optional<int64_t> StartTicksOf(pid_t pid) {
  std::ifstream file(absl::StrCat("/proc/", pid, "/stat"));
  std::string stat;
  std::getline(file, stat);
  // The second field, the name, may hold spaces and parentheses.
  const size_t name_end = stat.rfind(')');
  if (name_end == std::string::npos) return std::nullopt;
  const std::vector<std::string> fields =
      absl::StrSplit(stat.substr(name_end + 1), ' ', absl::SkipEmpty());
  constexpr size_t kStartTicks = 22 - 3;  // The first here is field 3.
  int64_t ticks = 0;
  if (fields.size() <= kStartTicks || !absl::SimpleAtoi(fields[kStartTicks], &ticks)) {
    return std::nullopt;
  }
  return ticks;
}

absl::StatusOr<WorkerProcess> WorkerProcess::Spawn(const std::string& program,
                                                   const std::vector<std::string>& args,
                                                   const std::string& log_path) {
  SpawnSetup setup;
  Configure(setup, log_path);
  std::vector<std::string> words = {program};
  words.insert(words.end(), args.begin(), args.end());
  std::vector<char*> argv;
  argv.reserve(words.size() + 1);
  for (std::string& word : words) argv.push_back(word.data());
  argv.push_back(nullptr);
  pid_t pid = 0;
  const int error =
      posix_spawn(&pid, program.c_str(), &setup.actions, &setup.attributes, argv.data(), environ);
  if (error != 0) {
    return absl::FailedPreconditionError(absl::StrCat("cannot start worker program ", program, ": ",
                                                      strerror(error), "; check workers.program"));
  }
  setpriority(PRIO_PROCESS, static_cast<id_t>(pid), kNice);
  // Not yet reaped, so the pid cannot have passed to another process.
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
  // After the pidfd, so that the number cannot pass to another process in between.
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
