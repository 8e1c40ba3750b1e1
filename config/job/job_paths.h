#pragma once

#include <string>
#include <vector>

#include "genesis/training/v1/job.pb.h"

namespace genesis {

// A field of a job specification that contains a path below the dataset root.
struct JobPath {
  std::string field;  // E.g. "dataset.trajectories.path".
  std::string* path;
  bool folder = false;  // True for a folder, false for a file.
};

// Returns the paths in `spec`, in the order of job.proto, as pointers into it. Empty
// optional paths are left out.
std::vector<JobPath> PathsOf(training::v1::JobSpec& spec);

}  // namespace genesis
