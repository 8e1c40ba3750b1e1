#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "genesis/training/v1/training_service.pb.h"

namespace genesis {

// The output files of a job other than checkpoints: step traces (<job>-trace-step-<n>.json) and
// exported weights (<job>-step-<n>.safetensors). All functions block on the disk.

// Lists the files by name, at most 1000. Empty if the folder does not exist.
std::vector<training::v1::Artifact> ListArtifactFiles(const std::string& dir,
                                                      const std::string& job_id);

// Reads at most `most` bytes of one file. Links cannot lead out of `dir`. NOT_FOUND if the job has
// no such file, OUT_OF_RANGE beyond its end.
absl::StatusOr<training::v1::ReadArtifactResponse> ReadArtifactFile(
    const std::string& dir, const training::v1::ReadArtifactRequest& request, int64_t most);

// Same, for a text held in memory.
absl::StatusOr<training::v1::ReadArtifactResponse> ReadArtifactText(
    const std::string& text, const training::v1::ReadArtifactRequest& request, int64_t most);

}  // namespace genesis
