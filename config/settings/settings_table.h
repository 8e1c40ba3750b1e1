#pragma once

#include <functional>
#include <string>
#include <vector>

#include "base/text/json.h"
#include "config/settings/settings.h"

namespace genesis {

// A setting of genesisd. The rows are the only declaration of names, ranges and meanings of
// settings. SettingGroup creates them from members of the structs in settings.h.
struct SettingRow {
  std::string key;          // YAML key, with dots between levels: "grpc.listen".
  std::string environment;  // E.g. "GENESIS_GRPC_LISTEN".
  // Default as users would type it or, if `derived`, a description: "<data_dir>/datasets".
  std::string fallback;
  bool derived = false;
  std::string unit;   // E.g. "host:port", "seconds"; "" for none.
  std::string range;  // Accepted values.
  Json schema;        // Accepted values as JSON Schema.
  std::string help;
  // Stores `text`. Returns "", or what is accepted if `text` is invalid.
  std::function<std::string(const std::string& text, Settings& settings)> set;
  // Returns the current value as the user would type it.
  std::function<std::string(const Settings& settings)> get;
  // True if a reload can change it. Other settings need a restart.
  bool reloadable = false;
};

const std::vector<SettingRow>& SettingsTable();

// Returns the flag: "--grpc-listen" for "grpc.listen", with '-' instead of '.' and '_'.
std::string FlagOf(const SettingRow& row);

// Return the setting with that key or flag; nullptr for none.
const SettingRow* FindByKey(const std::string& key);
const SettingRow* FindByFlag(const std::string& flag);

// An environment variable that is not a setting, but opens or closes the gate.
struct GateVariable {
  const char* name;
  const char* range;
  const char* fallback;
  const char* help;
};
const std::vector<GateVariable>& GateVariables();

}  // namespace genesis
