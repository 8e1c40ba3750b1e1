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
  // Location of each given field: of its value or, for a group of keys, of its name.
  std::map<std::string, Place> places;
  // Paths of fields with an error, including those that a misspelled key probably meant. Later
  // checks need not report them as missing.
  std::set<std::string> faulty;
};

// Sets the fields of `message` from `mapping`, whose keys are field names. Strict: unknown
// and repeated keys, values of another type, and two members of one oneof are errors, and
// all errors are returned. Enum values omit the prefix of their type. Full names and
// quoted numbers are also accepted, so that a message's JSON can be read. Lists are
// added to repeated fields, mappings to maps of strings; other fields replace those of `message`.
YamlReading ReadYamlMessage(const YAML::Node& mapping, google::protobuf::Message& message);

}  // namespace genesis
