#include "metrics/process_stats.h"

#include <sys/resource.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <iterator>
#include <system_error>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_split.h"
#include "absl/strings/string_view.h"
#include "absl/strings/strip.h"

namespace genesis {
namespace {

std::string ReadAll(const std::string& path) {
  std::ifstream file(path);
  return {std::istreambuf_iterator<char>(file), {}};
}

// Returns the fields of /proc/<pid>/stat starting with `state` (field 3); the name
// before them may contain spaces.
std::vector<std::string> StatFields(const std::string& text) {
  const size_t name_end = text.rfind(')');
  if (name_end == std::string::npos) return {};
  return absl::StrSplit(text.substr(name_end + 1), absl::ByAnyChar(" \n"), absl::SkipEmpty());
}

std::optional<double> Field(const std::vector<std::string>& fields, size_t number) {
  constexpr size_t kFirst = 3;
  double value = 0;
  if (number - kFirst >= fields.size() || !absl::SimpleAtod(fields[number - kFirst], &value)) {
    return std::nullopt;
  }
  return value;
}

std::optional<double> BootTimeSeconds(const std::string& text) {
  for (absl::string_view line : absl::StrSplit(text, '\n')) {
    double seconds = 0;
    if (absl::ConsumePrefix(&line, "btime ") && absl::SimpleAtod(line, &seconds)) return seconds;
  }
  return std::nullopt;
}

std::optional<double> CountEntries(const std::string& folder) {
  std::error_code error;
  std::filesystem::directory_iterator entries(folder, error);
  double count = 0;
  for (; !error && entries != std::filesystem::directory_iterator(); entries.increment(error)) {
    ++count;
  }
  if (error) return std::nullopt;
  return count;
}

}  // namespace

ProcessStats ReadProcessStats(const std::string& proc) {
  // Field numbers are those of proc(5).
  constexpr size_t kUserTicks = 14, kSystemTicks = 15, kStartTicks = 22, kResidentPages = 24;
  ProcessStats stats;
  const double ticks = static_cast<double>(sysconf(_SC_CLK_TCK));
  const std::vector<std::string> fields = StatFields(ReadAll(proc + "/self/stat"));
  const auto user = Field(fields, kUserTicks), system = Field(fields, kSystemTicks);
  if (user && system) stats.cpu_seconds = (*user + *system) / ticks;
  if (const auto pages = Field(fields, kResidentPages)) {
    stats.resident_bytes = *pages * static_cast<double>(sysconf(_SC_PAGESIZE));
  }
  const auto start = Field(fields, kStartTicks);
  const auto boot = BootTimeSeconds(ReadAll(proc + "/stat"));
  if (start && boot) stats.start_time_seconds = *boot + *start / ticks;
  stats.open_fds = CountEntries(proc + "/self/fd");
  rlimit limit{};
  if (getrlimit(RLIMIT_NOFILE, &limit) == 0 && limit.rlim_cur != RLIM_INFINITY) {
    stats.max_fds = static_cast<double>(limit.rlim_cur);
  }
  return stats;
}

}  // namespace genesis
