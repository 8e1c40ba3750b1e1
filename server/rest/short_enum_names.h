#pragma once

#include <string>

#include "google/protobuf/descriptor.h"
#include "google/protobuf/util/type_resolver.h"

namespace genesis {

// Returns the types of the API for protobuf's JSON parser, with the short names of enum values (see
// base/text/enum_names.h) beside the full ones. Lives as long as the process.
google::protobuf::util::TypeResolver* TypesWithShortEnumNames();

// Returns the URL of a type for TypesWithShortEnumNames.
std::string TypeUrl(const google::protobuf::Descriptor& type);

}  // namespace genesis
