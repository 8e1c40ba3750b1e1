#include "trainer/runtime/start_settings.h"

#include <sys/prctl.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <string_view>

namespace genesis {

bool IsSet(const StartSetting& setting) {
  const char* const found = getenv(setting.name);
  return found != nullptr && std::string_view(found) == setting.value;
}

std::vector<StartSetting> MissingStartSettings() {
  std::vector<StartSetting> missing;
  if (getenv(kSleep.name) == nullptr && getenv(kSpins.name) == nullptr) {
    missing = {kSleep, kSpins};
  }
  if (getenv(kMalloc.name) == nullptr) missing.push_back(kMalloc);
  return missing;
}

void RestartWithSettings(char** argv) {
  const std::vector<StartSetting> missing = MissingStartSettings();
  for (const StartSetting& setting : missing) {
    // Otherwise the program would restart forever.
    if (setenv(setting.name, setting.value, 0) != 0) return;
  }
  // Returns only on failure.
  if (!missing.empty()) execv("/proc/self/exe", argv);
  // Restore the name: execv() set it to "exe", so pgrep and top would not find the program.
  prctl(PR_SET_NAME, program_invocation_short_name);
}

}  // namespace genesis
