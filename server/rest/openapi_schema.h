#pragma once

#include <google/protobuf/descriptor.h>

#include <map>
#include <string>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "base/text/json.h"

namespace genesis {

// Returns the comment of a message, field, method or enum value as one paragraph.
template <typename Thing>
std::string CommentOf(const Thing& thing) {
  google::protobuf::SourceLocation place;
  if (!thing.GetSourceLocation(&place)) return "";
  const std::string& text =
      place.leading_comments.empty() ? place.trailing_comments : place.leading_comments;
  std::string paragraph = absl::StrReplaceAll(text, {{"\n", ""}});
  const size_t begin = paragraph.find_first_not_of(' ');
  return begin == std::string::npos ? "" : paragraph.substr(begin);
}

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
