#pragma once

#include <string>

#include "absl/status/statusor.h"

namespace genesis {

// A folder of compiled steps, each under its key (StepDescription.key):
//   <key>.pt2          the package, as AOTInductor writes it
//   <key>.pt2.sha256   "<SHA-256>  <key>.pt2", as sha256sum(1) writes it; there last
// It may be emptied at any time: a step that has no package runs eager.
//
// A package is a program that the worker runs, so it counts only where nobody but root and the
// worker's own user can have written it.

// Path of the package, every byte of it checked. NOT_FOUND where there is none, PERMISSION_DENIED
// where others may write it, DATA_LOSS where it is damaged or unfinished.
absl::StatusOr<std::string> FindPackage(const std::string& folder, const std::string& key);

}  // namespace genesis
