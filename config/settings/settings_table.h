#pragma once

#include <string>
#include <vector>

#include "config/settings/settings.h"

namespace genesis {

// One setting of genesisd: the only place where its names, default, range and meaning are written.
struct SettingRow {
  const char* key;          // In YAML, dots are levels: "grpc.listen".
  const char* environment;  // "GENESIS_GRPC_LISTEN".
  // As it would be typed; or "<data_dir>/datasets", worked out once data_dir is known (`derived`).
  const char* fallback;
  bool derived;
  const char* unit;   // "host:port", "seconds"; "" for none.
  const char* range;  // What is accepted.
  const char* help;
  // Stores `text`. Returns "", or what is accepted when it is not.
  std::string (*set)(const std::string& text, Settings& settings);
  // The value in use, as it would be typed.
  std::string (*get)(const Settings& settings);
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
