#pragma once

#include <string>
#include <vector>

namespace genesis {

// The last lines of a log file, at most 50 and at most 16 KiB; empty when it cannot be read.
std::vector<std::string> ReadLogTail(const std::string& path);

}  // namespace genesis
