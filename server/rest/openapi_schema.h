#pragma once

#include <google/protobuf/descriptor.h>

#include <map>
#include <string>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/string_view.h"
#include "server/rest/json_writer.h"

namespace genesis {

// The comment of a message, field, method or value as one paragraph.
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

// JSON Schema of messages as protobuf writes them in JSON. Remembers what is referred to, so that
// it can be written at the end.
class OpenApiSchemas {
 public:
  // `key`: {"$ref": ...}.
  void WriteReference(absl::string_view key, const google::protobuf::Descriptor& type,
                      JsonWriter& out);
  void WriteFieldSchema(absl::string_view key, const google::protobuf::FieldDescriptor& field,
                        JsonWriter& out);
  // Everything that was referred to, and what that refers to, by name.
  void WriteAll(JsonWriter& out);

 private:
  void WriteItem(const google::protobuf::FieldDescriptor& field, JsonWriter& out);
  void WriteMessage(const google::protobuf::Descriptor& type, JsonWriter& out);
  static void WriteEnum(const google::protobuf::EnumDescriptor& type, JsonWriter& out);

  void Collect(const google::protobuf::Descriptor& type);

  std::map<std::string, const google::protobuf::Descriptor*> messages_;
  std::map<std::string, const google::protobuf::EnumDescriptor*> enums_;
};

}  // namespace genesis
