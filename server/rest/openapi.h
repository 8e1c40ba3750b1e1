#pragma once

#include <string>

namespace genesis {

// Returns the HTTP API as OpenAPI 3.1: every method of the method table with its comment,
// parameters and messages, from the protos. Built once. docs/openapi.json contains this text.
const std::string& OpenApiText();

}  // namespace genesis
