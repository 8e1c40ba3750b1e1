#include "server/rest/path_template.h"

#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/escaping.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "base/text/field_error.h"
#include "base/text/utf8.h"

namespace genesis {

std::optional<std::map<std::string, std::string>> MatchPath(absl::string_view pattern,
                                                            absl::string_view path) {
  const std::vector<absl::string_view> want = absl::StrSplit(pattern, '/');
  const std::vector<absl::string_view> have = absl::StrSplit(path, '/');
  if (want.size() != have.size()) return std::nullopt;
  std::map<std::string, std::string> fields;
  for (size_t i = 0; i < want.size(); ++i) {
    const size_t close = want[i].find('}');
    if (close == absl::string_view::npos) {
      if (want[i] != have[i]) return std::nullopt;
      continue;
    }
    // The pattern is "{field}" or "{field}:verb".
    const absl::string_view verb = want[i].substr(close + 1);
    if (!absl::EndsWith(have[i], verb)) return std::nullopt;
    const absl::string_view value = have[i].substr(0, have[i].size() - verb.size());
    if (value.empty() || absl::StrContains(value, ':')) return std::nullopt;
    fields[std::string(want[i].substr(1, close - 1))] = std::string(value);
  }
  return fields;
}

absl::StatusOr<std::string> DecodePercent(absl::string_view text, bool plus_is_space) {
  std::string decoded;
  for (size_t i = 0; i < text.size(); ++i) {
    if (text[i] == '+' && plus_is_space) {
      decoded += ' ';
    } else if (text[i] != '%') {
      decoded += text[i];
    } else if (i + 2 < text.size() && absl::ascii_isxdigit(text[i + 1]) &&
               absl::ascii_isxdigit(text[i + 2])) {
      decoded += absl::HexStringToBytes(text.substr(i + 1, 2));
      i += 2;
    } else {
      return absl::InvalidArgumentError(
          absl::StrCat("the address has ", QuoteValue(text.substr(i, 3)),
                       "; accepted: % and two hexadecimal digits, such as %25 for % itself"));
    }
  }
  if (!IsUtf8(decoded)) {
    return absl::InvalidArgumentError(absl::StrCat("the address has ", QuoteValue(text),
                                                   "; accepted: UTF-8, its bytes written as %XX"));
  }
  return decoded;
}

}  // namespace genesis
