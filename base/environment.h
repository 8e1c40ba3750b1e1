#pragma once

#include <functional>
#include <optional>
#include <string>

namespace genesis {

// How a setting's environment variable is looked up. Tests pass a map; programs pass
// ProcessEnvironment.
using Environment = std::function<std::optional<std::string>(const std::string& name)>;

// getenv. Unset gives nullopt, set and empty gives "".
std::optional<std::string> ProcessEnvironment(const std::string& name);

}  // namespace genesis
