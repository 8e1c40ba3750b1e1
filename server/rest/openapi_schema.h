#pragma once

#include <google/protobuf/descriptor.h>

#include <map>
#include <set>
#include <string>

#include "base/text/json.h"

namespace genesis {

// Returns whether the type is protobuf's own: a string in JSON.
bool IsWellKnown(const google::protobuf::Descriptor& type);

// JSON Schemas of messages in protobuf's JSON form. Collects the referenced types, so that they can
// be added at the end.
class OpenApiSchemas {
 public:
  // Returns {"$ref": ...}.
  Json Reference(const google::protobuf::Descriptor& type);
  // Returns it for the body of a request, in which the daemon refuses unknown fields. The fields of
  // the path are not in the body.
  Json Request(const google::protobuf::Descriptor& type, const std::set<std::string>& in_path);
  Json FieldSchema(const google::protobuf::FieldDescriptor& field);
  // Adds all referenced types, and the types that these refer to, keyed by name.
  void AddAll(Json& schemas) const;

 private:
  Json Item(const google::protobuf::FieldDescriptor& field);
  Json MessageSchema(const google::protobuf::Descriptor& type) const;

  void Collect(const google::protobuf::Descriptor& type, bool of_request);

  std::map<std::string, const google::protobuf::Descriptor*> messages_;
  std::set<std::string> of_requests_;                     // Names in messages_.
  std::map<std::string, std::set<std::string>> in_path_;  // Fields that are not in the body.
  std::map<std::string, const google::protobuf::EnumDescriptor*> enums_;
};

}  // namespace genesis
