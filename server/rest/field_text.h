#pragma once

#include <google/protobuf/message.h>

#include <string>
#include <vector>

namespace genesis {

// Sets or, for a repeated field, adds a scalar from its text. Returns "" or what is accepted.
std::string SetFromText(const std::string& text, const google::protobuf::FieldDescriptor& field,
                        google::protobuf::Message& message);

// The field called `name` in the proto or in camel case; nullptr when there is none.
const google::protobuf::FieldDescriptor* FindField(const google::protobuf::Descriptor& type,
                                                   const std::string& name);

// "unknown; did you mean page_size?", or the known names where none is near.
std::string UnknownField(const google::protobuf::Descriptor& type, const std::string& name);

}  // namespace genesis
