#include "trainer/formats/json_cursor.h"

#include <charconv>
#include <limits>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "base/text/field_error.h"
#include "base/text/utf8.h"

namespace genesis {
namespace {

void AppendUtf8(std::string& text, uint32_t code) {
  if (code < 0x80) {
    text += static_cast<char>(code);
  } else if (code < 0x800) {
    text += static_cast<char>(0xC0 | (code >> 6));
    text += static_cast<char>(0x80 | (code & 0x3F));
  } else if (code < 0x10000) {
    text += static_cast<char>(0xE0 | (code >> 12));
    text += static_cast<char>(0x80 | ((code >> 6) & 0x3F));
    text += static_cast<char>(0x80 | (code & 0x3F));
  } else {
    text += static_cast<char>(0xF0 | (code >> 18));
    text += static_cast<char>(0x80 | ((code >> 12) & 0x3F));
    text += static_cast<char>(0x80 | ((code >> 6) & 0x3F));
    text += static_cast<char>(0x80 | (code & 0x3F));
  }
}

}  // namespace

bool JsonCursor::Fail(const std::string& fault) {
  if (fault_.empty()) fault_ = absl::StrCat("at byte ", at_, ": ", fault);
  return false;
}

char JsonCursor::Peek() {
  while (at_ < text_.size() &&
         (text_[at_] == ' ' || text_[at_] == '\t' || text_[at_] == '\n' || text_[at_] == '\r')) {
    ++at_;
  }
  return at_ < text_.size() ? text_[at_] : '\0';
}

bool JsonCursor::Take(char c) {
  if (Peek() != c || at_ >= text_.size()) return false;
  ++at_;
  return true;
}

bool JsonCursor::Word(absl::string_view word) {
  Peek();
  if (!absl::StartsWith(text_.substr(at_), word)) return false;
  at_ += word.size();
  return true;
}

bool JsonCursor::Object(absl::FunctionRef<bool(const std::string& key)> member) {
  if (!Take('{')) return Fail("accepted: an object {...}");
  if (++depth_ > kMaxDepth) return Fail("nests too deep");
  if (!Take('}')) {
    do {
      std::string key;
      if (!String(key)) return false;
      if (!Take(':')) return Fail("accepted: ':'");
      if (!member(key)) return Fail(absl::StrCat("the value of ", QuoteValue(key), " is unusable"));
    } while (Take(','));
    if (!Take('}')) return Fail("accepted: ',' or '}'");
  }
  --depth_;
  return true;
}

bool JsonCursor::Array(absl::FunctionRef<bool()> element) {
  if (!Take('[')) return Fail("accepted: an array [...]");
  if (++depth_ > kMaxDepth) return Fail("nests too deep");
  if (!Take(']')) {
    do {
      if (!element()) return Fail("an element is unusable");
    } while (Take(','));
    if (!Take(']')) return Fail("accepted: ',' or ']'");
  }
  --depth_;
  return true;
}

bool JsonCursor::HexDigits(uint32_t& value) {
  if (text_.size() - at_ < 4) return false;
  const char* const first = text_.data() + at_;
  const auto [end, error] = std::from_chars(first, first + 4, value, 16);
  at_ += 4;
  return error == std::errc() && end == first + 4;
}

// Reads an escape after its backslash.
bool JsonCursor::Escape(std::string& value) {
  constexpr absl::string_view kFrom = "\"\\/bfnrt";
  constexpr absl::string_view kTo = "\"\\/\b\f\n\r\t";
  if (at_ == text_.size()) return Fail("the text ends inside a string");
  const char c = text_[at_++];
  if (const size_t found = kFrom.find(c); found != absl::string_view::npos) {
    value += kTo[found];
    return true;
  }
  uint32_t code = 0;
  if (c != 'u' || !HexDigits(code)) return Fail("an unknown escape in a string");
  if (code >= 0xD800 && code < 0xDC00) {
    uint32_t low = 0;
    const bool pair = absl::StartsWith(text_.substr(at_), "\\u");
    if (pair) at_ += 2;
    if (!pair || !HexDigits(low) || low < 0xDC00 || low > 0xDFFF) {
      return Fail("half a surrogate pair in a string");
    }
    code = 0x10000 + ((code - 0xD800) << 10) + (low - 0xDC00);
  } else if (code >= 0xDC00 && code <= 0xDFFF) {
    return Fail("half a surrogate pair in a string");
  }
  AppendUtf8(value, code);
  return true;
}

bool JsonCursor::String(std::string& value) {
  value.clear();
  if (!Take('"')) return Fail("accepted: a string \"...\"");
  while (at_ < text_.size()) {
    const char c = text_[at_++];
    if (c == '"') return true;
    if (static_cast<unsigned char>(c) < 0x20) return Fail("a control character in a string");
    if (c != '\\') {
      const size_t length = Utf8Length(text_, --at_);
      if (length == 0) return Fail("a string is not UTF-8; save it as UTF-8");
      value.append(text_.data() + at_, length);
      at_ += length;
    } else if (!Escape(value)) {
      return false;
    }
  }
  return Fail("the text ends inside a string");
}

bool JsonCursor::Bool(bool& value) {
  value = Word("true");
  return value || Word("false") || Fail("accepted: true or false");
}

bool JsonCursor::Number(double& value, bool& whole) {
  whole = false;
  const std::pair<const char*, double> words[] = {
      {"NaN", std::numeric_limits<double>::quiet_NaN()},
      {"Infinity", std::numeric_limits<double>::infinity()},
      {"-Infinity", -std::numeric_limits<double>::infinity()}};
  for (const auto& [word, meant] : words) {
    if (!Word(word)) continue;
    value = meant;
    return true;
  }
  const char* const first = text_.data() + at_;
  const char* const digits = first + (Peek() == '-' ? 1 : 0);
  const char* const last = text_.data() + text_.size();
  const auto [end, error] = std::from_chars(first, last, value);
  // from_chars also accepts forms that JSON lacks: "inf", "1.", ".5", "01".
  const bool starts = digits < last && absl::ascii_isdigit(static_cast<unsigned char>(*digits));
  const bool zeros = starts && *digits == '0' && digits + 1 < end &&
                     absl::ascii_isdigit(static_cast<unsigned char>(digits[1]));
  if (!starts || zeros || error == std::errc::invalid_argument || end[-1] == '.') {
    return Fail("accepted: a number");
  }
  const absl::string_view text(first, static_cast<size_t>(end - first));
  whole = text.find_first_of(".eE") == absl::string_view::npos;
  if (error == std::errc::result_out_of_range) {
    // Too small or too large for a double: the sign of the exponent decides.
    value = absl::StrContains(text, "e-") || absl::StrContains(text, "E-")
                ? 0.0
                : std::numeric_limits<double>::infinity();
  }
  at_ += text.size();
  return true;
}

bool JsonCursor::Count(int64_t& value) {
  Peek();
  const char* const first = text_.data() + at_;
  const auto [end, error] = std::from_chars(first, text_.data() + text_.size(), value);
  const size_t size = static_cast<size_t>(end - first);
  if (error != std::errc() || *first == '-' || (size > 1 && *first == '0')) {
    return Fail("accepted: a whole number from 0 to 2^63 - 1");
  }
  at_ += size;
  return true;
}

bool JsonCursor::Skip() {
  std::string text;
  double number = 0;
  bool flag = false;
  switch (Peek()) {
    case '{':
      return Object([this](const std::string&) { return Skip(); });
    case '[':
      return Array([this] { return Skip(); });
    case '"':
      return String(text);
    case 't':
    case 'f':
      return Bool(flag);
    case 'n':
      return Word("null") || Fail("accepted: a value");
    default:
      return Number(number, flag);
  }
}

bool JsonCursor::End() {
  Peek();
  return at_ == text_.size() || Fail("accepted: the end of the text");
}

}  // namespace genesis
