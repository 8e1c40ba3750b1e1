#pragma once

#include <cstdint>
#include <optional>
#include <string>

namespace genesis {

// Strict readers of what people type in files, flags and the environment. Each takes the whole text
// or gives nullopt: no spaces, no leading '+', no "1_000", no "0x10", no "1e6" for a whole number.

std::optional<int64_t> ParseInt64(const std::string& text);
std::optional<uint64_t> ParseUint64(const std::string& text);

// "1e-3", "0.5", ".5"; finite only.
std::optional<double> ParseDouble(const std::string& text);

// Exactly "true" or "false".
std::optional<bool> ParseBool(const std::string& text);

}  // namespace genesis
