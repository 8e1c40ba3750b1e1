#include <algorithm>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "base/text/nearest.h"
#include "cli/doctor/checks.h"
#include "config/settings/settings_table.h"

namespace genesis::cli {
namespace {

constexpr char kSettings[] = "settings";
constexpr char kPrecision[] = "precision";
constexpr char kEnvironment[] = "environment";

// Variables that genesisctl, workers, or the scripts that build and install them, read.
constexpr const char* kOthers[] = {
    "GENESIS_CONFIG",       "GENESIS_SERVER",   "GENESIS_TOKEN_FILE", "GENESIS_TOKEN",
    "GENESIS_TLS_CA",       "GENESIS_TLS_CERT", "GENESIS_TLS_KEY",    "GENESIS_BUILD_JOBS",
    "GENESIS_LIBTORCH",     "GENESIS_PYTHON",   "GENESIS_NCCL",       "GENESIS_OWN_KERNELS",
    "GENESIS_SHARED_MEMORY"};

std::vector<std::string> KnownVariables() {
  std::vector<std::string> names(std::begin(kOthers), std::end(kOthers));
  for (const SettingRow& row : SettingsTable()) names.emplace_back(row.environment);
  for (const GateVariable& each : GateVariables()) names.emplace_back(each.name);
  return names;
}

bool MayBeOurs(const std::string& name) {
  return absl::StartsWith(name, "GENESIS_") || absl::StrContains(name, "FP16") ||
         absl::StartsWith(name, "FEATURE_FLAG");
}

void CheckNames(const std::vector<std::string>& variables, Findings& findings) {
  const std::vector<std::string> known = KnownVariables();
  for (const std::string& name : variables) {
    if (!MayBeOurs(name) || std::find(known.begin(), known.end(), name) != known.end()) continue;
    const std::string nearest = Nearest(name, known);
    findings.push_back(Note(
        kEnvironment, absl::StrCat(name, " is set, and no setting has that name"),
        nearest.empty() ? "unset it; docs/reference.md lists the variables that are read"
                        : absl::StrCat("set ", nearest, " instead, if that is what is meant")));
  }
}

}  // namespace

Findings CheckSettings(const LoadedSettings& loaded, const std::vector<std::string>& variables) {
  Findings findings;
  for (const FieldError& error : loaded.errors) {
    findings.push_back(Problem(kSettings, error.ToString(),
                               "give an accepted value; genesisd does "
                               "not start with this one"));
  }
  for (const std::string& warning : loaded.warnings) {
    findings.push_back(Note(kSettings, warning, "give an accepted value"));
  }
  const PrecisionGate& gate = loaded.settings.gate;
  for (const std::string& error : gate.errors) {
    findings.push_back(Problem(kPrecision, error,
                               "every job runs in FP32 until the value is one that is accepted"));
  }
  if (findings.empty()) findings.push_back(Good(kSettings, "every value is accepted"));
  findings.push_back(Good(kPrecision, absl::StrCat("reduced precision is ", gate.reason)));
  CheckNames(variables, findings);
  return findings;
}

}  // namespace genesis::cli
