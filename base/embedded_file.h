#pragma once

#include <string_view>

namespace genesis {

// A file of the source tree, embedded in the program (cmake/EmbedFiles.cmake).
struct EmbeddedFile {
  std::string_view name;  // Path below its folder, e.g. "vendor/uPlot.js".
  std::string_view content;
};

}  // namespace genesis
