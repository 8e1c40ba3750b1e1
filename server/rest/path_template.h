#pragma once

#include <map>
#include <optional>
#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace genesis {

// Returns the fields of `path`, as sent, if it matches `pattern`, such as
// "/v1/jobs/{job_id}:cancel"; their values as sent, not empty and without ':'. Otherwise nullopt.
std::optional<std::map<std::string, std::string>> MatchPath(absl::string_view pattern,
                                                            absl::string_view path);

// Decodes the %-escapes of a part of a path or, if `plus_is_space`, of a query. INVALID_ARGUMENT
// for a broken escape or if the result is not UTF-8.
absl::StatusOr<std::string> DecodePercent(absl::string_view text, bool plus_is_space);

}  // namespace genesis
