#pragma once

#include <string>
#include <vector>

#include "genesis/training/v1/job.pb.h"

namespace genesis {

// A path below the dataset root that a job specification contains.
struct JobPath {
  std::string field;  // E.g. "dataset.trajectories.path".
  std::string path;
  bool folder = false;  // True for a folder, false for a file.
};

// Returns the paths in `spec`, in the order of job.proto. Empty optional paths are left out.
std::vector<JobPath> PathsOf(const training::v1::JobSpec& spec);

// Replaces the path of `field`, which must be one that PathsOf returns for `spec`.
void SetPath(training::v1::JobSpec& spec, const std::string& field, const std::string& path);

// Makes every path of `spec` absolute: below the dataset root.
void PutPathsBelow(const std::string& datasets_root, training::v1::JobSpec& spec);

}  // namespace genesis
