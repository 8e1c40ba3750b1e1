#pragma once

#include <string>

#include "absl/strings/str_cat.h"

namespace genesis {

// Writes a line to standard error in one write(2), because several ranks share it and lines that
// are written in pieces would mix.
void WriteErrorLine(std::string line);

template <typename... Parts>
void PrintErrorLine(const Parts&... parts) {
  WriteErrorLine(absl::StrCat(parts...));
}

}  // namespace genesis
