// genesisd: the training daemon. Reads settings, runs a Daemon until SIGTERM or SIGINT, drains.
#include <signal.h>
#include <sys/stat.h>

#include <ctime>
#include <iostream>

#include "base/environment.h"
#include "base/exit_code.h"
#include "base/program_dir.h"
#include "base/version.h"
#include "config/settings/schema.h"
#include "config/settings/settings.h"
#include "server/daemon.h"
#include "server/rpc/file_handles.h"
#include "spdlog/spdlog.h"

namespace genesis {
namespace {

constexpr timespec kTendPeriod = {0, 200'000'000};

// Blocks signals before any thread starts, so that only the main thread's wait receives them.
sigset_t BlockSignals() {
  sigset_t signals;
  sigemptyset(&signals);
  for (const int each : {SIGTERM, SIGINT, SIGHUP}) sigaddset(&signals, each);
  pthread_sigmask(SIG_BLOCK, &signals, nullptr);
  signal(SIGPIPE, SIG_IGN);
  signal(SIGXFSZ,
         SIG_IGN);  // A file at its limit (RLIMIT_FSIZE) becomes a write error, like a full disk.
  return signals;
}

int Serve(LoadedSettings loaded) {
  const sigset_t signals = BlockSignals();
  RaiseFileHandleLimit();
  // New files are at most group-readable. A stricter inherited umask is kept.
  umask(umask(0) | 0027);
  Daemon daemon(std::move(loaded));
  // Workers must not inherit these, because they are not systemd services.
  for (const char* name : {"NOTIFY_SOCKET", "WATCHDOG_USEC", "WATCHDOG_PID"}) unsetenv(name);
  const std::optional<StartFailure> failure = daemon.Start();
  if (failure) {
    std::cerr << "error: " << failure->message << "\n";
    return ToInt(failure->code);
  }
  for (;;) {
    const int signal = sigtimedwait(&signals, nullptr, &kTendPeriod);
    if (signal == SIGTERM || signal == SIGINT) break;
    if (signal == SIGHUP) daemon.OnHangup();
    daemon.Tend();
  }
  return ToInt(daemon.Drain() ? ExitCode::kOk : ExitCode::kFailure);
}

int Main(const std::vector<std::string>& args) {
  LoadedSettings loaded = LoadSettings(args, ProcessEnvironment, ProgramDir());
  if (loaded.show_help) {
    std::cout << SettingsHelp();
    return ToInt(ExitCode::kOk);
  }
  if (loaded.show_version) {
    std::cout << "genesisd " << kVersion << "\n";
    return ToInt(ExitCode::kOk);
  }
  if (loaded.show_schema) {
    std::cout << SettingsSchema();
    return ToInt(ExitCode::kOk);
  }
  if (!loaded.errors.empty()) {
    std::cerr << FormatErrors(loaded);
    return ToInt(ExitCode::kUsage);
  }
  if (loaded.check_config) {
    std::cout << FormatEffective(loaded);
    return ToInt(ExitCode::kOk);
  }
  return Serve(std::move(loaded));
}

}  // namespace
}  // namespace genesis

int main(int argc, char** argv) {
  return genesis::Main(std::vector<std::string>(argv + 1, argv + argc));
}
