#pragma once

#include <functional>
#include <string>
#include <vector>

#include "base/text/json.h"
#include "config/settings/settings.h"

namespace genesis {

// A setting of genesisd: the only place where its names, range and meaning are declared. See
// SettingGroup, which makes it from a member of a struct of settings.h.
struct SettingRow {
  std::string key;          // In YAML, dots are levels: "grpc.listen".
  std::string environment;  // "GENESIS_GRPC_LISTEN".
  // As it would be typed; or "<data_dir>/datasets", worked out once data_dir is known (`derived`).
  std::string fallback;
  bool derived = false;
  std::string unit;   // "host:port", "seconds"; "" for none.
  std::string range;  // What is accepted.
  Json schema;        // The same as JSON Schema.
  std::string help;
  // Stores `text`. Returns "", or what is accepted when it is not.
  std::function<std::string(const std::string& text, Settings& settings)> set;
  // The value in use, as it would be typed.
  std::function<std::string(const Settings& settings)> get;
  // A reload changes it while the daemon runs; any other needs a restart.
  bool reloadable = false;
};

const std::vector<SettingRow>& SettingsTable();

// "--grpc-listen": the key with '-' for '.' and '_'.
std::string FlagOf(const SettingRow& row);

// nullptr when no setting has that key or flag.
const SettingRow* FindByKey(const std::string& key);
const SettingRow* FindByFlag(const std::string& flag);

// An environment variable that is no setting: it can only close or open the reduced-precision gate.
struct GateVariable {
  const char* name;
  const char* range;
  const char* fallback;
  const char* help;
};
const std::vector<GateVariable>& GateVariables();

}  // namespace genesis
