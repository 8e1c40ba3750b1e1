#include "server/rest/json_writer.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"

namespace genesis {

std::string QuoteJson(absl::string_view text) {
  std::string quoted = "\"";
  for (const char c : text) {
    if (c == '"' || c == '\\') {
      absl::StrAppend(&quoted, "\\", std::string(1, c));
    } else if (static_cast<unsigned char>(c) < 0x20) {
      absl::StrAppend(&quoted, absl::StrFormat("\\u%04x", c));
    } else {
      quoted += c;
    }
  }
  return quoted + "\"";
}

void JsonWriter::Next() {
  if (!std::exchange(first_, false)) text_ += ",";
  if (!open_.empty()) absl::StrAppend(&text_, "\n", std::string(2 * open_.size(), ' '));
}

JsonWriter& JsonWriter::Begin(char bracket) {
  Next();
  text_ += bracket;
  open_ += bracket == '{' ? '}' : ']';
  first_ = true;
  return *this;
}

JsonWriter& JsonWriter::Begin(absl::string_view key, char bracket) {
  Next();
  absl::StrAppend(&text_, QuoteJson(key), ": ", std::string(1, bracket));
  open_ += bracket == '{' ? '}' : ']';
  first_ = true;
  return *this;
}

JsonWriter& JsonWriter::End() {
  const char closing = open_.back();
  open_.pop_back();
  if (!first_) absl::StrAppend(&text_, "\n", std::string(2 * open_.size(), ' '));
  text_ += closing;
  first_ = false;
  return *this;
}

JsonWriter& JsonWriter::Put(absl::string_view key, absl::string_view text) {
  return PutRaw(key, QuoteJson(text));
}

JsonWriter& JsonWriter::PutRaw(absl::string_view key, absl::string_view json) {
  Next();
  absl::StrAppend(&text_, QuoteJson(key), ": ", json);
  return *this;
}

JsonWriter& JsonWriter::Add(absl::string_view text) {
  Next();
  text_ += QuoteJson(text);
  return *this;
}

std::string JsonWriter::Take() { return std::exchange(text_, "") + "\n"; }

}  // namespace genesis
