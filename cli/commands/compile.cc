// The `compile` command: builds the compiled step of a job, offline.
#include <signal.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/environment.h"
#include "base/program_dir.h"
#include "base/text/field_error.h"
#include "cli/commands/commands.h"
#include "config/settings/settings.h"

namespace genesis::cli {
namespace {

namespace fs = std::filesystem;

// The relative path is the same in the build tree and after an install.
fs::path ScriptPath() {
  return (fs::path(ProgramDir()) / "../share/genesis/compile/compile_step.py").lexically_normal();
}

std::string PythonOf(const Arguments& arguments) {
  if (arguments.Has("python")) return arguments.Value("python");
  return ProcessEnvironment("GENESIS_PYTHON").value_or("python3");
}

// Replaces this program by exec, so that output, exit code and Ctrl-C are those of the script.
// Returns errno on failure.
int Become(std::vector<std::string> command) {
  std::vector<char*> argv;
  for (std::string& word : command) argv.push_back(word.data());
  argv.push_back(nullptr);
  // Signal masks survive exec, and SIGINT is blocked here, because a thread waits for it.
  sigset_t none;
  sigemptyset(&none);
  sigprocmask(SIG_SETMASK, &none, nullptr);
  execvp(argv.front(), argv.data());
  return errno;
}

}  // namespace

ExitCode RunCompile(const Arguments& arguments, Session& session) {
  std::vector<std::string> flags;
  for (const char* name : {"config", "data-dir"}) {
    if (arguments.Has(name)) flags.push_back(absl::StrCat("--", name, "=", arguments.Value(name)));
  }
  const LoadedSettings loaded = LoadSettings(flags, &ProcessEnvironment, ProgramDir());
  if (!loaded.errors.empty()) {
    session.err << FormatErrors(loaded);
    return ExitCode::kUsage;
  }
  const fs::path script = ScriptPath();
  if (!fs::exists(script)) {
    session.err << "genesisctl: compile: " << script.string()
                << " is missing; it is installed with genesisctl: install the package again\n";
    return ExitCode::kFailure;
  }
  const Settings& settings = loaded.settings;
  const std::string python = PythonOf(arguments);
  const std::string into =
      arguments.Has("compiled-dir") ? arguments.Value("compiled-dir") : settings.compiled_dir();
  session.out << std::flush;
  const int error =
      Become({python, script.string(), "--worker", settings.workers.program, "--into", into,
              "--datasets-root", settings.datasets.root, "--", arguments.operands.front()});
  return ReportUsage(
      absl::StrCat("compile: Python ", QuoteValue(python), " cannot be started: ", strerror(error),
                   "; name one that has torch with --python or GENESIS_PYTHON"),
      session);
}

}  // namespace genesis::cli
