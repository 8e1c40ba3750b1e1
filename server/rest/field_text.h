#pragma once

#include <google/protobuf/message.h>

#include <string>
#include <vector>

namespace genesis {

// Sets a scalar from its text, or appends it to a repeated field. Returns "" or what is accepted.
std::string SetFromText(const std::string& text, const google::protobuf::FieldDescriptor& field,
                        google::protobuf::Message& message);

// Returns the field with that name, as in the proto or in camel case; nullptr if there is none.
const google::protobuf::FieldDescriptor* FindField(const google::protobuf::Descriptor& type,
                                                   const std::string& name);

// Returns "unknown; did you mean page_size?", or the known names if none is similar.
std::string UnknownField(const google::protobuf::Descriptor& type, const std::string& name);

}  // namespace genesis
