#pragma once

#include <string>

namespace genesis {

// Returns the folder of the running program, which holds the other programs of its installation.
std::string ProgramDir();

}  // namespace genesis
