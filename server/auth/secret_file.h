#pragma once

#include <string>

#include "absl/status/statusor.h"

namespace genesis {

// The whole of a file of at most 1 MiB that a setting names. `key` is the setting, for messages.
// NOT_FOUND, PERMISSION_DENIED or INVALID_ARGUMENT with the setting, the path and what to do.
absl::StatusOr<std::string> ReadSettingFile(const std::string& key, const std::string& path);

// The same for a file that holds a secret: one that other users may read or change is refused, for
// what it holds is then no secret any more.
absl::StatusOr<std::string> ReadSecretFile(const std::string& key, const std::string& path);

}  // namespace genesis
