#include "base/text/utf8.h"

namespace genesis {

size_t Utf8Length(absl::string_view text, size_t at) {
  const auto byte = [&](size_t i) -> unsigned {
    return i < text.size() ? static_cast<unsigned char>(text[i]) : 0;
  };
  const auto continues = [&](size_t i) { return (byte(i) & 0xC0) == 0x80; };
  const unsigned lead = byte(at);
  if (lead < 0x80) return 1;
  if (lead >= 0xC2 && lead <= 0xDF) return continues(at + 1) ? 2 : 0;
  if (lead >= 0xE0 && lead <= 0xEF) {
    const bool overlong = lead == 0xE0 && byte(at + 1) < 0xA0;
    const bool surrogate = lead == 0xED && byte(at + 1) > 0x9F;
    return !overlong && !surrogate && continues(at + 1) && continues(at + 2) ? 3 : 0;
  }
  if (lead >= 0xF0 && lead <= 0xF4) {
    const bool overlong = lead == 0xF0 && byte(at + 1) < 0x90;
    const bool too_large = lead == 0xF4 && byte(at + 1) > 0x8F;
    const bool complete = continues(at + 1) && continues(at + 2) && continues(at + 3);
    return !overlong && !too_large && complete ? 4 : 0;
  }
  return 0;
}

bool IsInsideUtf8Character(absl::string_view text, size_t at) {
  return at < text.size() && (static_cast<unsigned char>(text[at]) & 0xC0U) == 0x80U;
}

bool IsUtf8(absl::string_view text) {
  for (size_t at = 0; at < text.size();) {
    const size_t length = Utf8Length(text, at);
    if (length == 0) return false;
    at += length;
  }
  return true;
}

}  // namespace genesis
