// Texts about settings: --help, --check-config, start-up errors.
#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "base/exit_code.h"
#include "config/settings/settings.h"
#include "config/settings/settings_table.h"

namespace genesis {

std::string SettingsHelp() {
  std::string text =
      "Usage: genesisd [--FLAG=VALUE]...\n"
      "\n"
      "The training daemon. A setting is taken from its flag, else its environment variable, else\n"
      "the YAML file that --config names, else its default.\n"
      "\n"
      "  --config=FILE   YAML file with settings (GENESIS_CONFIG); default: none\n"
      "  --check-config  print every effective value with its source, and exit\n"
      "  --print-config-schema  print the JSON Schema of that file, and exit\n"
      "  --insecure      serve addresses beyond loopback although TLS or the check of who calls "
      "is missing\n"
      "  --help          print this, and exit\n"
      "  --version       print the version, and exit\n"
      "\n"
      "Settings (flag, environment variable, YAML key):\n";
  for (const SettingRow& row : SettingsTable()) {
    const std::string unit = row.unit.empty() ? "VALUE" : absl::AsciiStrToUpper(row.unit);
    absl::StrAppend(&text, "  ", FlagOf(row), "=", unit, ", ", row.environment, ", ", row.key,
                    "\n      ", row.help, "\n      Accepted: ", row.range,
                    ". Default: ", row.fallback, "\n");
  }
  text += "\nEnvironment only:\n";
  for (const GateVariable& variable : GateVariables()) {
    absl::StrAppend(&text, "  ", variable.name, "\n      ", variable.help,
                    "\n      Accepted: ", variable.range, ". Default: ", variable.fallback, "\n");
  }
  absl::StrAppend(&text, "\nExit codes:\n", ExitCodesHelp("genesisd"));
  return text;
}

std::string FormatEffective(const LoadedSettings& loaded) {
  std::string text;
  for (const EffectiveSetting& setting : loaded.effective) {
    absl::StrAppend(&text, setting.key, " = ", setting.value, "  (", setting.source, ")\n");
  }
  const PrecisionGate& gate = loaded.settings.gate;
  absl::StrAppend(&text, "reduced precision is ", gate.reason, "\n");
  for (const std::string& error : gate.errors) absl::StrAppend(&text, "error: ", error, "\n");
  for (const std::string& warning : loaded.warnings) {
    absl::StrAppend(&text, "warning: ", warning, "\n");
  }
  return text + FormatErrors(loaded);
}

std::string FormatErrors(const LoadedSettings& loaded) {
  std::string text;
  for (const FieldError& error : loaded.errors) {
    absl::StrAppend(&text, "error: ", error.ToString(), "\n");
  }
  return text;
}

}  // namespace genesis
