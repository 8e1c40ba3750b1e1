#pragma once

#include <cstddef>
#include <set>
#include <string>

#include "trainer/formats/json_cursor.h"

namespace genesis {

// The parts of a graph's JSON that LibTorch requires, and the sizes of its interface.
struct GraphOutline {
  std::set<std::string> parts;
  bool has_signature = false;
  size_t inputs = 0;
  size_t outputs = 0;
};

// Reads the JSON of a graph and checks that every operator anywhere in it is allowed. Returns false
// on an error, which `json` holds. If the error is an operator, `refused` is its name.
bool ReadOutline(JsonCursor& json, GraphOutline& outline, std::string& refused);

}  // namespace genesis
