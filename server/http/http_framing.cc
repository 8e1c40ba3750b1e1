#include "server/http/http_framing.h"

#include <algorithm>
#include <map>
#include <set>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "base/text/field_error.h"

namespace genesis {
namespace {

constexpr absl::string_view kEnd = "\r\n\r\n";
constexpr size_t kMaxDigits = 18;  // Digits of a length; more may overflow int64_t.

bool IsControl(char c) {
  const auto byte = static_cast<unsigned char>(c);
  return (byte < 0x20 && c != '\r' && c != '\n' && c != '\t') || byte == 0x7F;
}

// Returns true for a token of RFC 9110, 5.6.2.
bool IsToken(absl::string_view text) {
  constexpr absl::string_view kMarks = "!#$%&'*+-.^_`|~";
  return !text.empty() && std::all_of(text.begin(), text.end(), [&](char c) {
    return absl::ascii_isalnum(static_cast<unsigned char>(c)) ||
           kMarks.find(c) != absl::string_view::npos;
  });
}

// Returns true for a field whose duplicate some programs read and others ignore.
bool IsSingle(const std::string& name) {
  static const auto& names = *new std::set<std::string>{
      "authorization", "content-length", "content-type", "expect",           "host",
      "if-range",      "origin",         "range",        "transfer-encoding"};
  return names.contains(name);
}

using Fields = std::map<std::string, std::string>;  // Names in lower case.

std::string AddField(absl::string_view line, Fields& fields) {
  if (line[0] == ' ' || line[0] == '\t') return "a folded header line";
  const size_t colon = line.find(':');
  if (colon == absl::string_view::npos || !IsToken(line.substr(0, colon))) {
    return absl::StrCat("a header line without a name: ", QuoteValue(line));
  }
  const std::string name = absl::AsciiStrToLower(line.substr(0, colon));
  const std::string value(absl::StripAsciiWhitespace(line.substr(colon + 1)));
  if (!fields.emplace(name, value).second && IsSingle(name)) {
    return absl::StrCat("a second ", name, " header");
  }
  return "";
}

std::string FramingFault(const Fields& fields, bool is_1_1) {
  const auto length = fields.find("content-length");
  const auto coding = fields.find("transfer-encoding");
  if (length != fields.end() && coding != fields.end()) {
    return "both Content-Length and Transfer-Encoding";
  }
  if (length != fields.end()) {
    const std::string& digits = length->second;
    if (digits.empty() || digits.size() > kMaxDigits ||
        digits.find_first_not_of("0123456789") != std::string::npos) {
      return absl::StrCat("Content-Length ", QuoteValue(digits));
    }
  }
  if (coding != fields.end()) {
    if (!absl::EqualsIgnoreCase(coding->second, "chunked")) {
      return absl::StrCat("Transfer-Encoding ", QuoteValue(coding->second),
                          "; accepted: chunked alone");
    }
    if (!is_1_1) return "Transfer-Encoding, which HTTP/1.0 does not have";
  }
  if (is_1_1 && !fields.contains("host")) return "no Host header";
  return "";
}

}  // namespace

std::optional<size_t> FindHeadEnd(absl::string_view bytes, size_t scanned) {
  for (size_t i = scanned; i < bytes.size(); ++i) {
    if (IsControl(bytes[i])) return i + 1;
    if (bytes[i] != '\n') continue;
    if (i == 0 || bytes[i - 1] != '\r') return i + 1;
    if (i + 1 >= kEnd.size() && bytes.substr(i + 1 - kEnd.size(), kEnd.size()) == kEnd) {
      return i + 1;
    }
  }
  return std::nullopt;
}

std::string HeadFault(absl::string_view head) {
  if (!absl::EndsWith(head, kEnd)) return "a control character, or a line that ends without CRLF";
  Fields fields;
  bool is_first = true, is_1_1 = false;
  for (size_t begin = 0; begin + 2 < head.size();) {
    const size_t end = head.find("\r\n", begin);
    const absl::string_view line = head.substr(begin, end - begin);
    begin = end + 2;
    if (line.find('\r') != absl::string_view::npos) return "a CR within a line";
    if (is_first) {
      is_first = false;
      is_1_1 = absl::EndsWith(line, " HTTP/1.1");
      continue;
    }
    if (std::string fault = AddField(line, fields); !fault.empty()) return fault;
  }
  return FramingFault(fields, is_1_1);
}

}  // namespace genesis
