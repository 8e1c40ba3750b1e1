#pragma once

#include <string>
#include <vector>

namespace genesis {

// The exit codes of the programs. 1 and 2 mean the same in every program. ExitCodes() explains
// each.
enum class ExitCode : int {
  kOk = 0,
  kFailure = 1,
  kUsage = 2,
  kDataDirInUse = 3,
  kAddressInUse = 4,
  kStoreFailure = 5,
  kJobFailed = 6,
  kUnavailable = 7,
};

constexpr int ToInt(ExitCode code) { return static_cast<int>(code); }

// One row of the table that --help and docs/reference.md print. A test freezes it.
struct ExitCodeRow {
  ExitCode code;
  const char* programs;
  const char* meaning;
};
const std::vector<ExitCodeRow>& ExitCodes();

// Returns the rows of `program` for its --help, "  0  ..." each.
std::string ExitCodesHelp(const std::string& program);

}  // namespace genesis
