#pragma once

#include <string>

#include "absl/status/statusor.h"
#include "genesis/training/v1/job.pb.h"

namespace genesis {

// Parses a job file: YAML whose keys are the fields of JobSpec in job.proto, with enum values
// without their prefix (mode: MIXED_BF16). INVALID_ARGUMENT lists the errors (see ToStatus),
// including those of ValidateJobSpec, one per line in the order of the file, each with file, line,
// column, value and what is accepted. An error about an unknown key suggests a similar known key.
// `file` is used in messages only.
absl::StatusOr<training::v1::JobSpec> ParseJobFile(const std::string& yaml,
                                                   const std::string& file);

// Reads the file and parses it. NOT_FOUND, PERMISSION_DENIED, or an error of ParseJobFile.
absl::StatusOr<training::v1::JobSpec> ReadJobFile(const std::string& path);

}  // namespace genesis
