#pragma once

#include <string>

#include "absl/strings/string_view.h"

namespace genesis {

// Writes JSON for people, in the order in which it is given: indented, one member a line.
class JsonWriter {
 public:
  JsonWriter& Begin(char bracket);  // '{' or '['.
  JsonWriter& Begin(absl::string_view key, char bracket);
  JsonWriter& End();
  JsonWriter& Put(absl::string_view key, absl::string_view text);
  JsonWriter& PutRaw(absl::string_view key, absl::string_view json);  // A number, true, null.
  JsonWriter& Add(absl::string_view text);                            // To an array.

  // With a newline at the end.
  std::string Take();

 private:
  void Next();

  std::string text_;
  std::string open_;  // Closing brackets, the innermost last.
  bool first_ = true;
};

// In double quotes, escaped.
std::string QuoteJson(absl::string_view text);

}  // namespace genesis
