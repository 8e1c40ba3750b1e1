#include <sys/resource.h>

#include <algorithm>
#include <fstream>
#include <string>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "cli/doctor/checks.h"
#include "cli/text.h"

namespace genesis::cli {
namespace {

// Files for the store, logs and workers, not counting one per connection.
constexpr int64_t kFilesBesides = 512;
// Memory of two workers with LibTorch (one training, one spare), without models.
constexpr int64_t kLeastMemory = int64_t{2} << 30;

Finding CheckFiles(int most_connections) {
  rlimit limit = {};
  getrlimit(RLIMIT_NOFILE, &limit);
  const auto most = static_cast<int64_t>(std::min<rlim_t>(limit.rlim_max, rlim_t{1} << 40));
  const int64_t wanted = most_connections + kFilesBesides;
  const std::string text = absl::StrCat("at most ", most, " open files here");
  if (most >= wanted) return Good("limits", text);
  return Note(
      "limits",
      absl::StrCat(text, ", and grpc.max_connections ", most_connections, " may want ", wanted),
      absl::StrCat("LimitNOFILE=", wanted,
                   " in the unit (ulimit -Hn in a shell), or fewer "
                   "connections"));
}

// Returns the smaller of the machine's memory and the limit of the control group, in bytes.
int64_t Memory(const Host& host) {
  int64_t bytes = 0;
  std::ifstream meminfo(host.proc + "/meminfo");
  for (std::string line; std::getline(meminfo, line);) {
    const std::vector<std::string> words = absl::StrSplit(line, ' ', absl::SkipEmpty());
    if (words.size() < 2 || words[0] != "MemTotal:") continue;
    if (absl::SimpleAtoi(words[1], &bytes)) bytes *= 1024;
  }
  int64_t allowed = 0;
  if (std::ifstream(host.sys + "/fs/cgroup/memory.max") >> allowed)
    bytes = std::min(bytes, allowed);
  return bytes;
}

Finding CheckMemory(const Host& host) {
  const int64_t bytes = Memory(host);
  if (bytes >= kLeastMemory) return Good("memory", FormatBytes(bytes));
  return Problem("memory",
                 absl::StrCat(FormatBytes(bytes),
                              ": too little for a worker that trains "
                              "and one that waits"),
                 "give at least 2 GiB, or set workers.spares to 0");
}

Finding CheckClock(const Host& host) {
  if (host.clock_is_synchronised()) return Good("clock", "synchronised");
  return Note("clock",
              "the kernel does not know the clock to be synchronised: times in logs, "
              "certificates and retention may be wrong",
              "run chronyd or systemd-timesyncd on the machine");
}

}  // namespace

Findings CheckSystem(const Settings& settings, const Host& host) {
  return {CheckFiles(settings.grpc.max_connections), CheckMemory(host), CheckClock(host)};
}

}  // namespace genesis::cli
