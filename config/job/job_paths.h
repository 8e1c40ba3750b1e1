#pragma once

#include <string>
#include <vector>

#include "genesis/training/v1/job.pb.h"

namespace genesis {

// A field of a job specification that names a path below the dataset root.
struct JobPath {
  std::string field;  // "dataset.trajectories.path"
  std::string* path;
  bool folder = false;  // Names a folder, not a file.
};

// Returns the paths that `spec` names, in the order of job.proto; they point into it. Empty
// optional ones are left out.
std::vector<JobPath> PathsOf(training::v1::JobSpec& spec);

}  // namespace genesis
