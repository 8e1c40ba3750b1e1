#pragma once

#include <vector>

#include "base/embedded_file.h"

namespace genesis {

// Returns the files that CMakeLists.txt lists. The build generates the definition.
const std::vector<EmbeddedFile>& DashboardFiles();

}  // namespace genesis
