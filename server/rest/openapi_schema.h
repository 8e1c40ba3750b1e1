#pragma once

#include <google/protobuf/descriptor.h>

#include <map>
#include <string>

#include "base/text/json.h"

namespace genesis {

// JSON Schemas of messages in protobuf's JSON form. Collects the referenced types, so that they can
// be added at the end.
class OpenApiSchemas {
 public:
  // Returns {"$ref": ...}.
  Json Reference(const google::protobuf::Descriptor& type);
  Json FieldSchema(const google::protobuf::FieldDescriptor& field);
  // Adds all referenced types, with the types they refer to, by name.
  void AddAll(Json& schemas) const;

 private:
  Json Item(const google::protobuf::FieldDescriptor& field);
  Json MessageSchema(const google::protobuf::Descriptor& type) const;

  void Collect(const google::protobuf::Descriptor& type);

  std::map<std::string, const google::protobuf::Descriptor*> messages_;
  std::map<std::string, const google::protobuf::EnumDescriptor*> enums_;
};

}  // namespace genesis
