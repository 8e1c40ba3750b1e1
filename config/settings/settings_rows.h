#pragma once

#include <vector>

#include "config/settings/settings_table.h"

namespace genesis {

// The parts of SettingsTable(), each in its own file.

// In settings_files.cc: paths.
std::vector<SettingRow> FileRows();
// In settings_listeners.cc: listeners and authentication.
std::vector<SettingRow> ListenerRows();
// In settings_workers.cc: workers, devices, the order of jobs.
std::vector<SettingRow> WorkerRows();
// In settings_launchers.cc: clusters that start workers.
std::vector<SettingRow> LauncherRows();
// In settings_store.cc: retention.
std::vector<SettingRow> StoreRows();
// In settings_telemetry.cc: log, history, OpenTelemetry.
std::vector<SettingRow> TelemetryRows();
// In settings_precision.cc: reduced precision.
std::vector<SettingRow> PrecisionRows();

}  // namespace genesis
