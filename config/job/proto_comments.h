#pragma once

#include <google/protobuf/descriptor.h>

#include <string>

#include "absl/strings/str_replace.h"

namespace genesis {

// Returns the protos of the API with their comments, which generated code lacks. The pool lives as
// long as the process.
const google::protobuf::DescriptorPool& CommentedProtos();

// Returns the comment of a message, field, method or enum value of CommentedProtos() as one
// paragraph.
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

// Returns the comment of a field of CommentedProtos() with its default, range and unit.
std::string DescriptionOf(const google::protobuf::FieldDescriptor& field);

}  // namespace genesis
