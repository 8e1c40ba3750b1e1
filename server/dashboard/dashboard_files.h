#pragma once

#include <string_view>
#include <vector>

namespace genesis {

// A file of the dashboard, embedded in the program.
struct DashboardFile {
  std::string_view name;  // Path below server/dashboard, e.g. "vendor/uPlot.js".
  std::string_view content;
};

// Returns the files that CMakeLists.txt lists. The build generates the definition.
const std::vector<DashboardFile>& DashboardFiles();

}  // namespace genesis
