#include "cli/text.h"

#include <algorithm>
#include <cmath>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"

namespace genesis::cli {
namespace {

// The other bytes of a character are 10xxxxxx.
bool StartsCharacter(char c) { return (static_cast<unsigned char>(c) & 0xC0) != 0x80; }

}  // namespace

std::string Printable(absl::string_view text) {
  std::string printable(text);
  for (char& c : printable) {
    if (absl::ascii_iscntrl(c)) c = '?';
  }
  return printable;
}

size_t TextWidth(absl::string_view text) {
  return static_cast<size_t>(std::count_if(text.begin(), text.end(), StartsCharacter));
}

std::string CutToWidth(std::string text, size_t width) {
  size_t characters = 0;
  for (size_t i = 0; i < text.size(); ++i) {
    if (!StartsCharacter(text[i]) || ++characters <= width) continue;
    text.resize(i);
    break;
  }
  return text;
}

std::string FormatTimestamp(const google::protobuf::Timestamp& time) {
  return absl::FormatTime("%Y-%m-%d %H:%M:%SZ", absl::FromUnixSeconds(time.seconds()),
                          absl::UTCTimeZone());
}

std::string FormatBytes(int64_t bytes) {
  constexpr const char* kUnits[] = {"KiB", "MiB", "GiB", "TiB", "PiB", "EiB"};
  if (bytes < 1024) return absl::StrCat(bytes, " B");
  double size = static_cast<double>(bytes) / 1024;
  size_t unit = 0;
  for (; size >= 1024 && unit + 1 < std::size(kUnits); ++unit) size /= 1024;
  return absl::StrFormat("%.1f %s", size, kUnits[unit]);
}

std::string FormatSeconds(double seconds) {
  const auto total = static_cast<int64_t>(std::llround(seconds));
  const int64_t hours = total / 3600, minutes = total / 60 % 60, rest = total % 60;
  if (hours > 0) return absl::StrFormat("%d:%02d:%02d", hours, minutes, rest);
  return absl::StrFormat("%d:%02d", minutes, rest);
}

std::string FormatFigure(double value) { return absl::StrFormat("%.6g", value); }

}  // namespace genesis::cli
