#pragma once

#include <string>

#include "absl/status/statusor.h"

namespace genesis {

// Returns the ID by which hosts recognize a folder that they share: the content of its file
// .genesis-folder, 32 hexadecimal digits. "" if the file does not exist.
std::string ReadFolderId(const std::string& folder);

// Returns the same ID. Creates the folder and the file if needed; UNAVAILABLE if that fails.
absl::StatusOr<std::string> EnsureFolderId(const std::string& folder);

}  // namespace genesis
