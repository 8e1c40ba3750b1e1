#pragma once

#include <string>

#include "absl/status/statusor.h"

namespace genesis {

// The mark that tells a folder that several hosts see from another of the same path: its file
// .genesis-folder, 32 hexadecimal digits. "" when there is none.
std::string ReadFolderId(const std::string& folder);

// The same, and writes the file where there is none. UNAVAILABLE when it cannot be written.
absl::StatusOr<std::string> EnsureFolderId(const std::string& folder);

}  // namespace genesis
