#pragma once

#include <string>

#include "google/protobuf/message.h"

namespace genesis::cli {

// Returns the JSON of `message` in protobuf's mapping with the field names of the .proto files.
// Fields without presence are always printed, so that scripts find them. On one line if `compact`.
std::string ToJson(const google::protobuf::Message& message, bool compact);

// Returns the same fields and values as ToJson, as YAML in block style; whole numbers are not
// quoted. ParseJobFile reads the YAML of a JobSpec.
std::string ToYaml(const google::protobuf::Message& message);

}  // namespace genesis::cli
