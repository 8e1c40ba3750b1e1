#pragma once

#include <string>

namespace genesis {

// Returns the text of docs/reference.md: every setting and every exit code, from their tables.
std::string ReferencePage();

}  // namespace genesis
