#pragma once

#include <vector>

#include "config/settings/settings_table.h"

namespace genesis {

// The parts of SettingsTable(), each in a file of its name.

// settings_files.cc: where things lie.
std::vector<SettingRow> FileRows();
// settings_listeners.cc: who may call, over what.
std::vector<SettingRow> ListenerRows();
// settings_workers.cc: workers, devices, the order of jobs.
std::vector<SettingRow> WorkerRows();
// settings_launchers.cc: clusters that start workers.
std::vector<SettingRow> LauncherRows();
// settings_store.cc: how long things are kept.
std::vector<SettingRow> StoreRows();
// settings_precision.cc: reduced precision.
std::vector<SettingRow> PrecisionRows();

}  // namespace genesis
