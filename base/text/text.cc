#include "base/text/text.h"

#include <algorithm>
#include <cstdint>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "base/text/utf8.h"

namespace genesis {
namespace {

// Returns the code point of the character of `length` bytes at the front of `text`.
uint32_t CodePoint(absl::string_view text, size_t length) {
  const auto lead = static_cast<unsigned char>(text[0]);
  if (length == 1) return lead;
  uint32_t point = lead & (0x7FU >> length);
  for (size_t i = 1; i < length; ++i) {
    point = point << 6U | (static_cast<unsigned char>(text[i]) & 0x3FU);
  }
  return point;
}

// Returns whether a terminal, a log reader or a person would misread the character.
bool IsControl(uint32_t point) {
  const bool c0_or_c1 = point < 0x20 || (point >= 0x7F && point < 0xA0);
  const bool separator = point == 0x2028 || point == 0x2029;
  const bool bidirectional = point == 0x061C || point == 0x200E || point == 0x200F ||
                             (point >= 0x202A && point <= 0x202E) ||
                             (point >= 0x2066 && point <= 0x2069);
  return c0_or_c1 || separator || bidirectional;
}

std::string Escaped(uint32_t point) {
  if (point == '\n') return "\\n";
  if (point == '\t') return "\\t";
  if (point == '\r') return "\\r";
  return point < 0x80 ? absl::StrFormat("\\x%02x", point) : absl::StrFormat("\\u%04x", point);
}

std::string Fit(absl::string_view text, bool keep_lines) {
  std::string fit;
  fit.reserve(text.size());
  for (size_t at = 0; at < text.size();) {
    const size_t length = Utf8Length(text, at);
    if (length == 0) {
      absl::StrAppendFormat(&fit, "\\x%02x", static_cast<unsigned char>(text[at]));
      ++at;
      continue;
    }
    const uint32_t point = CodePoint(text.substr(at), length);
    const bool kept = keep_lines && (point == '\n' || point == '\t');
    if (IsControl(point) && !kept) {
      fit += Escaped(point);
    } else {
      fit.append(text.data() + at, length);
    }
    at += length;
  }
  return fit;
}

// Returns the head and the tail of `text`, which is valid UTF-8 and stands for `total` bytes.
std::string Cut(absl::string_view text, size_t max_bytes, size_t total) {
  const std::string mark = absl::StrCat(" ...[", total, " bytes in all]... ");
  const size_t room = max_bytes > mark.size() ? max_bytes - mark.size() : 0;
  // The head shows what happened, the tail why.
  size_t head = std::min(room / 2, text.size() / 2);
  size_t tail = text.size() - std::min(room - head, text.size() - head);
  while (head > 0 && IsInsideUtf8Character(text, head)) --head;
  while (IsInsideUtf8Character(text, tail)) ++tail;
  return absl::StrCat(text.substr(0, head), mark, text.substr(tail));
}

std::string FitWithin(absl::string_view text, size_t max_bytes, bool keep_lines) {
  if (text.size() <= max_bytes) {
    const std::string fit = Fit(text, keep_lines);
    return fit.size() <= max_bytes ? fit : Cut(fit, max_bytes, text.size());
  }
  // Escaping only lengthens text, so the middle would be cut anyway.
  const std::string ends = Fit(text.substr(0, max_bytes), keep_lines) +
                           Fit(text.substr(text.size() - max_bytes), keep_lines);
  return Cut(ends, max_bytes, text.size());
}

}  // namespace

std::string OneLine(absl::string_view text, size_t max_bytes) {
  return FitWithin(text, max_bytes, /*keep_lines=*/false);
}

std::string BoundedText(absl::string_view text, size_t max_bytes) {
  return FitWithin(text, max_bytes, /*keep_lines=*/true);
}

std::string WordsText(const std::vector<std::string>& words) {
  return absl::StrCat(absl::StrJoin(words.begin(), words.end() - 1, ", "), " or ", words.back());
}

}  // namespace genesis
