#pragma once

#include <string>

#include "google/protobuf/descriptor.h"

namespace genesis {

// Names of enum values as users write them: without the prefix of their type, "FP32" for
// PRECISION_MODE_FP32. The prefix is what stands before "UNSPECIFIED" in the name of number 0.
std::string ShortEnumName(const google::protobuf::EnumValueDescriptor& value);

// Returns the value with this short or full name; null if there is none.
const google::protobuf::EnumValueDescriptor* FindEnumValue(
    const google::protobuf::EnumDescriptor& type, const std::string& name);

// Returns the short names, separated by commas, without UNSPECIFIED.
std::string ShortEnumNames(const google::protobuf::EnumDescriptor& type);

}  // namespace genesis
