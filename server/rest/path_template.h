#pragma once

#include <map>
#include <optional>
#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace genesis {

// The fields of `path`, a path as it was sent, when it has the form of `pattern`, such as
// "/v1/jobs/{job_id}:cancel"; their values as sent, not empty and without ':'. Else nullopt.
std::optional<std::map<std::string, std::string>> MatchPath(absl::string_view pattern,
                                                            absl::string_view path);

// A part of a path or, where `plus_is_space`, of a query with its %-escapes undone.
// INVALID_ARGUMENT for a broken escape and for what is not UTF-8 then.
absl::StatusOr<std::string> DecodePercent(absl::string_view text, bool plus_is_space);

}  // namespace genesis
