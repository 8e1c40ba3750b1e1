#pragma once

#include <string>

#include "absl/status/status.h"

namespace genesis {

// NOT_FOUND, for every method that takes a job id.
absl::Status NoSuchJob(const std::string& id);

}  // namespace genesis
