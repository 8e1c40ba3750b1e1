#pragma once

#include <string>

#include "google/protobuf/message.h"

namespace genesis::cli {

// Returns the protobuf JSON of `message` with the field names of the .proto files; on one line if
// `compact`. Fields without presence are always printed, so that scripts find them.
std::string ToJson(const google::protobuf::Message& message, bool compact);

// Returns the same fields and values as ToJson, as block-style YAML. Whole numbers are not quoted.
// ParseJobFile can read the YAML of a JobSpec.
std::string ToYaml(const google::protobuf::Message& message);

}  // namespace genesis::cli
