#pragma once

#include <functional>
#include <string>
#include <vector>

#include "base/text/json.h"
#include "config/settings/settings.h"

namespace genesis {

// A setting of genesisd: the only place that declares its names, range and meaning. SettingGroup
// creates it from a member of a struct of settings.h.
struct SettingRow {
  std::string key;          // Key in YAML, where dots are levels: "grpc.listen".
  std::string environment;  // "GENESIS_GRPC_LISTEN".
  // Default as the user would type it; or "<data_dir>/datasets", derived from data_dir (`derived`).
  std::string fallback;
  bool derived = false;
  std::string unit;   // "host:port", "seconds"; "" for none.
  std::string range;  // Accepted values.
  Json schema;        // Same as JSON Schema.
  std::string help;
  // Stores `text`. Returns "", or what is accepted if `text` is not.
  std::function<std::string(const std::string& text, Settings& settings)> set;
  // Returns the value in use, as the user would type it.
  std::function<std::string(const Settings& settings)> get;
  // True if a reload changes it; any other setting needs a restart.
  bool reloadable = false;
};

const std::vector<SettingRow>& SettingsTable();

// Returns "--grpc-listen": the key with '-' for '.' and '_'.
std::string FlagOf(const SettingRow& row);

// Return nullptr if no setting has that key or flag.
const SettingRow* FindByKey(const std::string& key);
const SettingRow* FindByFlag(const std::string& flag);

// An environment variable that is not a setting: it can only close or open the gate.
struct GateVariable {
  const char* name;
  const char* range;
  const char* fallback;
  const char* help;
};
const std::vector<GateVariable>& GateVariables();

}  // namespace genesis
