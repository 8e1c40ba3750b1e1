#include "server/launchers/command.h"

#include <fcntl.h>
#include <poll.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <csignal>
#include <cstring>
#include <string_view>
#include <utility>

#include "absl/cleanup/cleanup.h"
#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "base/running_time.h"

extern char** environ;

namespace genesis {
namespace {

// Interval at which a call checks whether the daemon is stopping.
constexpr int kRoundMs = 100;

// A pipe. Its open ends are closed with the object.
class Pipe {
 public:
  Pipe() {
    if (pipe2(ends_.data(), O_CLOEXEC) != 0) ends_ = {-1, -1};
  }
  Pipe(const Pipe&) = delete;
  Pipe& operator=(const Pipe&) = delete;
  ~Pipe() {
    CloseRead();
    CloseWrite();
  }

  bool ok() const { return ends_[0] >= 0; }
  int read() const { return ends_[0]; }
  int write() const { return ends_[1]; }
  void CloseRead() { Close(ends_[0]); }
  void CloseWrite() { Close(ends_[1]); }

 private:
  static void Close(int& end) {
    if (end >= 0) close(std::exchange(end, -1));
  }
  std::array<int, 2> ends_ = {-1, -1};
};

struct Pipes {
  Pipe input;
  Pipe output;
  Pipe errors;
  bool ok() const { return input.ok() && output.ok() && errors.ok(); }
};

// Starts the program with the pipes as its standard streams. Returns 0 or an errno.
int Spawn(const std::vector<std::string>& words, const Pipes& pipes, pid_t& pid) {
  std::vector<std::string> copies = words;
  std::vector<char*> argv;
  argv.reserve(copies.size() + 1);
  for (std::string& word : copies) argv.push_back(word.data());
  argv.push_back(nullptr);
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  const absl::Cleanup destroy_actions = [&] { posix_spawn_file_actions_destroy(&actions); };
  posix_spawn_file_actions_adddup2(&actions, pipes.input.read(), STDIN_FILENO);
  posix_spawn_file_actions_adddup2(&actions, pipes.output.write(), STDOUT_FILENO);
  posix_spawn_file_actions_adddup2(&actions, pipes.errors.write(), STDERR_FILENO);
  posix_spawn_file_actions_addclosefrom_np(&actions, STDERR_FILENO + 1);
  posix_spawnattr_t attributes;
  posix_spawnattr_init(&attributes);
  const absl::Cleanup destroy_attributes = [&] { posix_spawnattr_destroy(&attributes); };
  sigset_t none;
  sigemptyset(&none);
  sigset_t all;
  sigfillset(&all);
  posix_spawnattr_setsigmask(&attributes, &none);
  posix_spawnattr_setsigdefault(&attributes, &all);
  posix_spawnattr_setpgroup(&attributes, 0);
  posix_spawnattr_setflags(&attributes,
                           POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF | POSIX_SPAWN_SETPGROUP);
  return posix_spawnp(&pid, argv[0], &actions, &attributes, argv.data(), environ);
}

// The communication with a started program: writes its input and collects its outputs.
class Conversation {
 public:
  Conversation(Pipes* pipes, std::string_view input, const CommandLimits& limits)
      : pipes_(*pipes), input_(input), limits_(limits) {
    pipes_.input.CloseRead();
    pipes_.output.CloseWrite();
    pipes_.errors.CloseWrite();
    for (const int end : {pipes_.input.write(), pipes_.output.read(), pipes_.errors.read()}) {
      fcntl(end, F_SETFL, O_NONBLOCK);
    }
    if (input_.empty()) pipes_.input.CloseWrite();
  }

  // Runs until the program has closed both of its outputs.
  absl::Status Hold(absl::Time deadline, const std::atomic<bool>* stopping) {
    while (pipes_.output.read() >= 0 || pipes_.errors.read() >= 0) {
      if (*stopping) return absl::DeadlineExceededError("the daemon stops");
      if (RunningNow() >= deadline) {
        return absl::DeadlineExceededError(
            absl::StrCat("it gave no answer within ", absl::FormatDuration(limits_.timeout)));
      }
      // poll(2) ignores negative descriptors.
      std::array<pollfd, 3> watched = {{{pipes_.input.write(), POLLOUT, 0},
                                        {pipes_.output.read(), POLLIN, 0},
                                        {pipes_.errors.read(), POLLIN, 0}}};
      if (poll(watched.data(), watched.size(), kRoundMs) <= 0) continue;
      if (watched[0].revents != 0) Tell();
      if (watched[1].revents != 0 && !Hear(pipes_.output, result_.output)) {
        pipes_.output.CloseRead();
      }
      if (watched[2].revents != 0 && !Hear(pipes_.errors, result_.errors)) {
        pipes_.errors.CloseRead();
      }
      if (result_.output.size() > limits_.max_output) {
        return absl::ResourceExhaustedError(
            absl::StrCat("it wrote more than ", limits_.max_output, " bytes"));
      }
      if (result_.errors.size() > limits_.max_errors) result_.errors.resize(limits_.max_errors);
    }
    return absl::OkStatus();
  }

  CommandResult& result() { return result_; }

 private:
  void Tell() {
    // After EPIPE, the program has closed its input, so the rest is dropped.
    const ssize_t count = write(pipes_.input.write(), input_.data(), input_.size());
    if (count < 0 && (errno == EAGAIN || errno == EINTR)) return;
    input_.remove_prefix(count < 0 ? input_.size() : static_cast<size_t>(count));
    if (input_.empty()) pipes_.input.CloseWrite();
  }

  // Returns false at the end of the output.
  static bool Hear(const Pipe& pipe, std::string& text) {
    std::array<char, 16384> piece = {};
    const ssize_t count = read(pipe.read(), piece.data(), piece.size());
    if (count < 0) return errno == EAGAIN || errno == EINTR;
    text.append(piece.data(), static_cast<size_t>(count));
    return count > 0;
  }

  Pipes& pipes_;
  std::string_view input_;
  const CommandLimits limits_;
  CommandResult result_;
};

// Waits for the process to exit, kills it at the deadline, and records its status. A process that
// has closed its outputs may still be running.
void Reap(pid_t pid, absl::Time deadline, CommandResult& result) {
  constexpr int kPauseMs = 5;
  int status = 0;
  while (waitpid(pid, &status, WNOHANG) == 0) {
    if (RunningNow() >= deadline) kill(-pid, SIGKILL);
    poll(nullptr, 0, kPauseMs);
  }
  if (WIFEXITED(status)) result.exit_code = WEXITSTATUS(status);
  if (WIFSIGNALED(status)) result.signal = WTERMSIG(status);
}

}  // namespace

absl::StatusOr<CommandResult> RunCommand(const std::vector<std::string>& words,
                                         const std::string& input, const CommandLimits& limits,
                                         const std::atomic<bool>* stopping) {
  Pipes pipes;
  if (!pipes.ok()) {
    return absl::ResourceExhaustedError(
        absl::StrCat("cannot run ", words.front(), ": ", strerror(errno)));
  }
  pid_t pid = 0;
  if (const int error = Spawn(words, pipes, pid); error != 0) {
    const std::string text = absl::StrCat("cannot run ", words.front(), ": ", strerror(error));
    return error == ENOENT ? absl::NotFoundError(text) : absl::FailedPreconditionError(text);
  }
  Conversation conversation(&pipes, input, limits);
  const absl::Time deadline = RunningNow() + limits.timeout;
  const absl::Status held = conversation.Hold(deadline, stopping);
  Reap(pid, held.ok() ? deadline : absl::InfinitePast(), conversation.result());
  if (!held.ok()) {
    return absl::Status(held.code(), absl::StrCat(words.front(), ": ", held.message()));
  }
  return std::move(conversation.result());
}

}  // namespace genesis
