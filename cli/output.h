#pragma once

#include <string>

#include "google/protobuf/message.h"

namespace genesis::cli {

// JSON of `message` in protobuf's mapping with the field names of the .proto files; fields without
// presence are always printed, so that scripts find them. On one line when `compact`.
std::string ToJson(const google::protobuf::Message& message, bool compact);

// The same fields and values as ToJson, as YAML in block style; whole numbers stand without quotes.
// ParseJobFile reads the YAML of a JobSpec.
std::string ToYaml(const google::protobuf::Message& message);

}  // namespace genesis::cli
