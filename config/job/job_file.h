#pragma once

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "genesis/training/v1/job.pb.h"

namespace genesis {

// Parses a job file: YAML whose keys are the fields of JobSpec in job.proto, with enum values
// without their prefix (mode: MIXED_BF16). INVALID_ARGUMENT lists the errors (see ToStatus),
// including those of ValidateJobSpec, one per line in the order of the file, each with file, line,
// column, value and what is accepted. An error about an unknown key suggests a similar known key.
// `file` is used in messages only. An override, "training.max_steps=100", sets a field before the
// checks; its value is YAML, and an error of the field names the override instead of a line.
absl::StatusOr<training::v1::JobSpec> ParseJobFile(const std::string& yaml, const std::string& file,
                                                   const std::vector<std::string>& overrides = {});

// Reads the file and parses it. NOT_FOUND, PERMISSION_DENIED, or an error of ParseJobFile.
absl::StatusOr<training::v1::JobSpec> ReadJobFile(const std::string& path,
                                                  const std::vector<std::string>& overrides = {});

}  // namespace genesis
