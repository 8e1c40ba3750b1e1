#include "base/exit_code.h"

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"

namespace genesis {

const std::vector<ExitCodeRow>& ExitCodes() {
  static const auto& rows = *new std::vector<ExitCodeRow>{
      {ExitCode::kOk, "genesisd, genesis-worker, genesisctl", "Done; for genesisd a clean drain."},
      {ExitCode::kFailure, "genesisd, genesis-worker, genesisctl",
       "It ran and failed; for genesisd the drain was not complete."},
      {ExitCode::kUsage, "genesisd, genesis-worker, genesisctl",
       "Unusable flag, environment value, configuration or job file."},
      {ExitCode::kDataDirInUse, "genesisd", "Another genesisd holds the data folder."},
      {ExitCode::kAddressInUse, "genesisd", "A listen address is taken or not ours."},
      {ExitCode::kStoreFailure, "genesisd",
       "The store cannot be opened or written: no space, corrupt, newer schema."},
      {ExitCode::kJobFailed, "genesis-worker, genesisctl",
       "The job FAILED (genesisctl train --watch and watch, genesis-worker --spec)."},
      {ExitCode::kUnavailable, "genesisctl", "No daemon answers, or it drains."},
  };
  return rows;
}

std::string ExitCodesHelp(const std::string& program) {
  std::string text;
  for (const ExitCodeRow& row : ExitCodes()) {
    if (!absl::StrContains(row.programs, program)) continue;
    absl::StrAppend(&text, "  ", ToInt(row.code), "  ", row.meaning, "\n");
  }
  return text;
}

}  // namespace genesis
