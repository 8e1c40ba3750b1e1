#include "config/settings/settings_table.h"

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "config/settings/settings_rows.h"

namespace genesis {

const std::vector<SettingRow>& SettingsTable() {
  static const auto& table = *[] {
    auto* rows = new std::vector<SettingRow>(FileRows());
    for (const std::vector<SettingRow>& more : {ListenerRows(), WorkerRows(), LauncherRows(),
                                                StoreRows(), TelemetryRows(), PrecisionRows()}) {
      rows->insert(rows->end(), more.begin(), more.end());
    }
    return rows;
  }();
  return table;
}

std::string FlagOf(const SettingRow& row) {
  return absl::StrCat("--", absl::StrReplaceAll(row.key, {{".", "-"}, {"_", "-"}}));
}

const SettingRow* FindByKey(const std::string& key) {
  for (const SettingRow& row : SettingsTable()) {
    if (row.key == key) return &row;
  }
  return nullptr;
}

const SettingRow* FindByFlag(const std::string& flag) {
  for (const SettingRow& row : SettingsTable()) {
    if (FlagOf(row) == flag) return &row;
  }
  return nullptr;
}

const std::vector<GateVariable>& GateVariables() {
  static const auto& variables = *new std::vector<GateVariable>{
      {"ENABLE_FP16_TRAINING", "exactly true or false", "false",
       "Gate of every reduced-precision mode (FP16, BF16, mixed). Any other value means false and "
       "is logged as an error."},
      {"FEATURE_FLAGS", "comma list of name:bool", "(empty)",
       "fp16_training:false closes the gate, for a staged rollback. An unreadable fp16_training "
       "closes it too and is logged as an error; other names are not ours."},
  };
  return variables;
}

}  // namespace genesis
