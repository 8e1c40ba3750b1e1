#pragma once

#include <string>

#include "absl/status/statusor.h"

namespace genesis {

// A folder of compiled steps, each under its key (StepDescription.key):
//   <key>.pt2          the package as written by AOTInductor
//   <key>.pt2.sha256   "<SHA-256>  <key>.pt2", in the format of sha256sum(1); written last
// It may be emptied at any time: a step without a package runs eagerly.
//
// The worker executes a package, so it is used only if no user except root and the worker's own
// could have written it.

// Returns the path of the package after verifying every byte. NOT_FOUND if there is none,
// PERMISSION_DENIED if other users may write it, DATA_LOSS if it is damaged or unfinished.
absl::StatusOr<std::string> FindPackage(const std::string& folder, const std::string& key);

}  // namespace genesis
