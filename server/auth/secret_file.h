#pragma once

#include <string>

#include "absl/status/statusor.h"

namespace genesis {

// Returns the content of the file, at most 1 MiB, that a setting names. `key` is
// the setting, for error messages. NOT_FOUND, PERMISSION_DENIED or INVALID_ARGUMENT
// with setting, path and cure.
absl::StatusOr<std::string> ReadSettingFile(const std::string& key, const std::string& path);

// Same, for a file without secrets whose content must be trusted. Refuses a file that other users
// may change.
absl::StatusOr<std::string> ReadTrustedFile(const std::string& key, const std::string& path);

// Same, for a file with a secret. Refuses a file that others may use or its group change.
absl::StatusOr<std::string> ReadSecretFile(const std::string& key, const std::string& path);

}  // namespace genesis
