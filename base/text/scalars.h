#pragma once

#include <cstdint>
#include <optional>
#include <string>

namespace genesis {

// Strict parsers of user input in files, flags and the environment. Each parses the whole text or
// returns nullopt: no spaces, no leading '+', no "1_000", no "0x10", no "1e6" for an integer.

std::optional<int64_t> ParseInt64(const std::string& text);
std::optional<uint64_t> ParseUint64(const std::string& text);

// Accepts "1e-3", "0.5", ".5"; finite numbers only.
std::optional<double> ParseDouble(const std::string& text);

// Accepts exactly "true" or "false".
std::optional<bool> ParseBool(const std::string& text);

}  // namespace genesis
