#pragma once

#include <string>

namespace genesis {

// The folder of the program that runs, where the others of its installation are.
std::string ProgramDir();

}  // namespace genesis
