#pragma once

#include <vector>

#include "config/settings/settings_table.h"

namespace genesis {

// Parts of SettingsTable() that stand in files of their own. Who may call, over what.
std::vector<SettingRow> ListenerRows();
// Workers, devices, the order of jobs.
std::vector<SettingRow> WorkerRows();
// A setting's row: the member that keeps it, and how it is checked.
std::vector<SettingRow> StoreRows();

}  // namespace genesis
