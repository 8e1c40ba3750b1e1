#include "config/settings/reference.h"

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "base/exit_code.h"
#include "config/settings/settings_table.h"

namespace genesis {
namespace {

std::string Code(const std::string& text) { return absl::StrCat("`", text, "`"); }

std::string Row(const std::vector<std::string>& cells) {
  std::string row = "|";
  for (const std::string& cell : cells) {
    absl::StrAppend(&row, " ", absl::StrReplaceAll(cell, {{"|", "\\|"}}), " |");
  }
  return row + "\n";
}

}  // namespace

std::string ReferencePage() {
  std::string page =
      "# Reference\n"
      "\n"
      "Printed from the tables in `config/settings/settings_table.cc` and `base/exit_code.cc`; "
      "write it "
      "anew with\n"
      "`cmake --build --preset release --target reference`.\n"
      "\n"
      "## Settings of genesisd\n"
      "\n"
      "A setting is taken from its flag, else its environment variable, else the YAML file that "
      "`--config` or\n"
      "`GENESIS_CONFIG` names, else its default. The flag of `grpc.listen` is `--grpc-listen`; in "
      "YAML a dot is a\n"
      "level. `genesisd --check-config` prints every effective value with its source, and "
      "`docs/genesisd.schema.json`\n"
      "(`genesisd --print-config-schema`) lets an editor check the file. What a reload changes is "
      "taken over while the\n"
      "daemon runs, at SIGHUP or `genesisctl config reload`; the rest needs a restart.\n"
      "\n";
  page += Row({"Key", "Environment", "Default", "Unit", "Accepted", "Reload", "Meaning"});
  page += Row({"---", "---", "---", "---", "---", "---", "---"});
  for (const SettingRow& row : SettingsTable()) {
    page += Row({Code(row.key), Code(row.environment), Code(row.fallback), row.unit, row.range,
                 row.reloadable ? "yes" : "no", row.help});
  }
  page +=
      "\n"
      "Two variables have no key, so that one line in the environment always rolls back. Any *no* "
      "wins.\n"
      "\n";
  page += Row({"Environment", "Accepted", "Default", "Meaning"});
  page += Row({"---", "---", "---", "---"});
  for (const GateVariable& variable : GateVariables()) {
    page += Row({Code(variable.name), variable.range, variable.fallback, variable.help});
  }
  page +=
      "\n"
      "An unreadable value stops start-up with exit code 2; all are listed at once. Two kinds do "
      "not: what can\n"
      "close the gate (`precision.reduced_precision` and the two above) closes it and is logged as "
      "an error, and a\n"
      "number in `FP16_*` is only a warning while the gate is closed.\n"
      "\n"
      "## Exit codes\n"
      "\n";
  page += Row({"Code", "Programs", "Meaning"});
  page += Row({"---", "---", "---"});
  for (const ExitCodeRow& row : ExitCodes()) {
    page += Row({absl::StrCat(ToInt(row.code)), row.programs, row.meaning});
  }
  return page;
}

}  // namespace genesis
