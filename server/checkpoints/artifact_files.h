#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "genesis/training/v1/training_service.pb.h"

namespace genesis {

// Files that a job leaves beside its checkpoints: traces of its steps
// (<job>-trace-step-<n>.json) and exported weights (<job>-step-<n>.safetensors). Each function
// waits for the disk.

// By name; at most 1000. Empty where the folder is gone.
std::vector<training::v1::Artifact> ListArtifactFiles(const std::string& dir,
                                                      const std::string& job_id);

// A piece of one of them, which no link leads out of `dir`. NOT_FOUND where the job has none of
// that name, OUT_OF_RANGE behind its end.
absl::StatusOr<training::v1::ReadArtifactResponse> ReadArtifactFile(
    const std::string& dir, const training::v1::ReadArtifactRequest& request, int64_t most);

// A piece of a text that is held in memory; statuses as above.
absl::StatusOr<training::v1::ReadArtifactResponse> ReadArtifactText(
    const std::string& text, const training::v1::ReadArtifactRequest& request, int64_t most);

}  // namespace genesis
