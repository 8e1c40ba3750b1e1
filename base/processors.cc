#include "base/processors.h"

#include <sched.h>

#include <algorithm>
#include <cstdint>
#include <fstream>
#include <thread>

#include "absl/strings/match.h"

namespace genesis {
namespace {

// Returns the path of this process's control group below the mount point, e.g.
// "/system.slice/genesis-trainer.service".
std::string GroupOf(const std::string& own_group) {
  constexpr char kVersion2[] = "0::";
  std::ifstream file(own_group);
  for (std::string line; std::getline(file, line);) {
    if (absl::StartsWith(line, kVersion2)) return line.substr(sizeof(kVersion2) - 1);
  }
  return "/";
}

// Returns the quota in processors: 2 for a file like "200000 100000", but at most `fallback`.
// Returns `fallback` for "max 100000" or a missing file.
int Quota(const std::string& path, int fallback) {
  std::ifstream file(path);
  int64_t quota = 0;
  int64_t period = 0;
  if (!(file >> quota >> period) || quota <= 0 || period <= 0) return fallback;
  return static_cast<int>(std::min<int64_t>(fallback, (quota + period - 1) / period));
}

}  // namespace

int AffinityProcessors() {
  cpu_set_t allowed;
  if (sched_getaffinity(0, sizeof(allowed), &allowed) == 0) return CPU_COUNT(&allowed);
  // The host has more processors than a cpu_set_t holds.
  return std::max(1, static_cast<int>(std::thread::hardware_concurrency()));
}

int UsableProcessors(const std::string& own_group, const std::string& groups) {
  int processors = AffinityProcessors();
  std::string group = GroupOf(own_group);
  while (true) {
    processors = Quota(groups + group + "/cpu.max", processors);
    const size_t slash = group.find_last_of('/');
    if (group.empty() || slash == std::string::npos) return processors;
    group.resize(slash);
  }
}

}  // namespace genesis
