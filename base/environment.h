#pragma once

#include <functional>
#include <optional>
#include <string>

namespace genesis {

// A function that looks up an environment variable. Tests look it up in a map.
using Environment = std::function<std::optional<std::string>(const std::string& name)>;

// Calls getenv(3). Returns nullopt if unset and "" if set but empty.
std::optional<std::string> ProcessEnvironment(const std::string& name);

}  // namespace genesis
