#pragma once

#include <optional>
#include <string>

#include "google/protobuf/descriptor.h"
#include "google/protobuf/generated_enum_reflection.h"

namespace genesis {

// Returns the name of an enum value as users write it: without the prefix of its type, "FP32" for
// PRECISION_MODE_FP32. The prefix is the part before "UNSPECIFIED" in the name of the value 0.
std::string ShortEnumName(const google::protobuf::EnumValueDescriptor& value);

// Returns the value with this short or full name; null if there is none.
const google::protobuf::EnumValueDescriptor* FindEnumValue(
    const google::protobuf::EnumDescriptor& type, const std::string& name);

// Returns the short names, separated by commas, without UNSPECIFIED.
std::string ShortEnumNames(const google::protobuf::EnumDescriptor& type);

// Returns the short name, such as "RUNNING" for JOB_STATE_RUNNING; the number, such as "9", of a
// value of a newer version, which has no name here.
std::string ShortEnumName(const google::protobuf::EnumDescriptor& type, int number);

template <typename Enum>
std::string ShortEnumName(Enum value) {
  return ShortEnumName(*google::protobuf::GetEnumDescriptor<Enum>(), static_cast<int>(value));
}

// Returns the value with this short or full name; nullopt if there is none.
template <typename Enum>
std::optional<Enum> ParseEnumName(const std::string& name) {
  const auto* value = FindEnumValue(*google::protobuf::GetEnumDescriptor<Enum>(), name);
  return value != nullptr ? std::optional(static_cast<Enum>(value->number())) : std::nullopt;
}

}  // namespace genesis
