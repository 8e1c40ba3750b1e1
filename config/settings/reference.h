#pragma once

#include <string>

namespace genesis {

// Returns the text of docs/reference.md: all settings and exit codes, from their tables.
std::string ReferencePage();

}  // namespace genesis
