#pragma once

#include <vector>

#include "base/embedded_file.h"

namespace genesis {

// Returns the job files of examples/ that CMakeLists.txt lists. The build generates the definition.
const std::vector<EmbeddedFile>& ExampleFiles();

}  // namespace genesis
