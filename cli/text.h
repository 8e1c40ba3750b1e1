#pragma once

#include <cstdint>
#include <string>

#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "google/protobuf/timestamp.pb.h"

namespace genesis::cli {

// Makes text from the daemon safe for a terminal by replacing control characters with '?'.
std::string Printable(absl::string_view text);

// Returns the number of characters in `text`, which is UTF-8.
size_t TextWidth(absl::string_view text);

// Cuts `text` after `width` characters.
std::string CutToWidth(std::string text, size_t width);

std::string FormatTimestamp(const google::protobuf::Timestamp& time);  // "2026-01-02 03:04:05Z"
std::string FormatBytes(int64_t bytes);                                // "1.5 MiB"
std::string FormatSeconds(double seconds);                             // "0:07", "1:02:03"
std::string FormatFigure(double value);                                // "0.0123457", "65536"

}  // namespace genesis::cli
