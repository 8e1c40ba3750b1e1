#pragma once

#include <nlohmann/json.hpp>
#include <string>

namespace genesis {

// JSON that keeps the order in which members are set.
using Json = nlohmann::ordered_json;

// Prints JSON for people: indented, with a newline at the end. Bytes that are not UTF-8 become
// U+FFFD; NaN and infinity, which JSON lacks, become null.
std::string PrintJson(const Json& value);

// Returns `value`, or null if it was not measured: 0 would read as the best possible loss.
template <typename T>
Json Measured(bool measured, const T& value) {
  return measured ? Json(value) : Json();
}

}  // namespace genesis
