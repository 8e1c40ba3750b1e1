#include <fcntl.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <string>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "cli/doctor/checks.h"

extern char** environ;

namespace genesis::cli {
namespace {

constexpr char kWorker[] = "libtorch";

struct Outcome {
  int status = -1;     // From waitpid; -1 if it could not be started.
  std::string output;  // stdout and stderr, or why it could not be started.
};

Outcome Run(const std::string& program, const char* argument) {
  int ends[2];
  if (pipe2(ends, O_CLOEXEC) != 0) return {-1, strerror(errno)};
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_adddup2(&actions, ends[1], STDOUT_FILENO);
  posix_spawn_file_actions_adddup2(&actions, ends[1], STDERR_FILENO);
  std::string path = program;
  std::string option = argument;
  char* const argv[] = {path.data(), option.data(), nullptr};
  pid_t pid = 0;
  const int error = posix_spawn(&pid, program.c_str(), &actions, nullptr, argv, environ);
  posix_spawn_file_actions_destroy(&actions);
  close(ends[1]);
  Outcome outcome;
  if (error != 0) {
    outcome.output = strerror(error);
  } else {
    char buffer[4096];
    for (ssize_t size; (size = read(ends[0], buffer, sizeof(buffer))) > 0;) {
      outcome.output.append(buffer, static_cast<size_t>(size));
    }
    while (waitpid(pid, &outcome.status, 0) < 0 && errno == EINTR) {
    }
  }
  close(ends[0]);
  return outcome;
}

}  // namespace

Findings CheckWorker(const Settings& settings) {
  const std::string& program = settings.workers.program;
  Outcome outcome = Run(program, "--describe-device");
  absl::StripAsciiWhitespace(&outcome.output);
  if (outcome.status == 0) {
    return {Good(kWorker, absl::StrReplaceAll(outcome.output, {{"\n", "; "}}))};
  }
  if (outcome.status == -1) {
    return {Problem(kWorker, absl::StrCat(program, " cannot be started: ", outcome.output),
                    "let workers.program name the program genesis-worker of this version")};
  }
  return {Problem(kWorker, absl::StrCat(program, " does not start: ", outcome.output),
                  "install the LibTorch that it was built with (deploy/setup.sh), or build it "
                  "again with GENESIS_LIBTORCH naming the one that is there")};
}

}  // namespace genesis::cli
