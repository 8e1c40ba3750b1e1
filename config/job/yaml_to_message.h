#pragma once

#include <map>
#include <set>
#include <string>
#include <vector>

#include "base/text/field_error.h"
#include "base/text/yaml_document.h"
#include "google/protobuf/message.h"

namespace genesis {

// The results of reading a YAML mapping into a message.
struct YamlReading {
  std::vector<FieldError> errors;
  // Location of each given field: its value, or for a group of keys its name.
  std::map<std::string, Place> places;
  // Fields with an error in `errors`, including those that a misspelt key meant; a later check need
  // not report them as missing.
  std::set<std::string> faulty;
};

// Sets the fields of `message` from `mapping`, whose keys are the names of its fields. Strict:
// unknown and repeated keys, values of another type, and two members of one oneof are errors, and
// all are found. Enum values are named without the prefix of their type; the full name and quoted
// numbers are accepted too, so that the JSON of a message can be read back. Requires a message
// without repeated fields.
YamlReading ReadYamlMessage(const YAML::Node& mapping, google::protobuf::Message& message);

}  // namespace genesis
