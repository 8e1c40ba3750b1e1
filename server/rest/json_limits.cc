#include "server/rest/json_limits.h"

#include "absl/strings/str_cat.h"

namespace genesis {

absl::Status CheckJsonLimits(absl::string_view text, const JsonLimits& limits) {
  size_t depth = 0, values = 0;
  char quote = 0;  // Protobuf accepts single and double quotes.
  for (size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if (quote != 0) {
      if (c == '\\') ++i;
      if (c == quote) quote = 0;
      continue;
    }
    if (c == '"' || c == '\'') quote = c;
    const bool opens = c == '[' || c == '{';
    if (opens && ++depth > limits.max_depth) {
      return absl::InvalidArgumentError(
          absl::StrCat("the JSON is nested deeper than ", limits.max_depth,
                       " levels; accepted: the fields of the request, which need fewer"));
    }
    if ((c == ']' || c == '}') && depth > 0) --depth;
    if ((opens || c == ',' || c == ':') && ++values > limits.max_values) {
      return absl::InvalidArgumentError(
          absl::StrCat("the JSON has more than ", limits.max_values,
                       " values; accepted: at most that many; send what is more in further "
                       "requests or batches"));
    }
  }
  return absl::OkStatus();
}

}  // namespace genesis
