#pragma once

#include <nlohmann/json.hpp>
#include <string>

namespace genesis {

// JSON that keeps the order in which members are set.
using Json = nlohmann::ordered_json;

// For people: indented, with a newline at the end. Bytes that are not UTF-8 become U+FFFD; NaN and
// infinity, which JSON does not have, become null.
std::string PrintJson(const Json& value);

// Null where nothing was measured: 0 would be the best loss there is.
template <typename T>
Json Measured(bool measured, const T& value) {
  return measured ? Json(value) : Json();
}

}  // namespace genesis
