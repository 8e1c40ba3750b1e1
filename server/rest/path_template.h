#pragma once

#include <map>
#include <optional>
#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace genesis {

// Returns the fields of `path` if it matches `pattern`, such as "/v1/jobs/{job_id}:cancel", else
// nullopt. Values are still %-encoded, not empty and without ':'.
std::optional<std::map<std::string, std::string>> MatchPath(absl::string_view pattern,
                                                            absl::string_view path);

// Decodes the %-escapes of a part of a path or, if `plus_is_space`, of a query. INVALID_ARGUMENT if
// an escape is broken or the result is not UTF-8.
absl::StatusOr<std::string> DecodePercent(absl::string_view text, bool plus_is_space);

}  // namespace genesis
