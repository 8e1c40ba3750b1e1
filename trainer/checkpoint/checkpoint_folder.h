#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"

namespace genesis {

// The checkpoints of one job: files <job id>-step-<12 digits>.pt in one folder.
//
// Owner: the run. Threads: one. Failure: only Prepare can fail; what cannot be removed stays.
class CheckpointFolder {
 public:
  CheckpointFolder(const std::string& folder, const std::string& job_id);

  // Makes the folder and removes what a killed worker left half written.
  absl::Status Prepare();

  // Absolute.
  std::string Path(int64_t step) const;
  // "<job id>-step-<step>"
  std::string Id(int64_t step) const;

  // Removes all but `keep` checkpoints and returns the ids of the removed. The newest up to `step`
  // are kept; those of later steps are of a course that the job has left, and go first.
  std::vector<std::string> Retain(int64_t keep, int64_t step) const;

 private:
  std::vector<int64_t> Steps() const;

  std::string folder_;
  std::string prefix_;  // "<job id>-step-"
};

}  // namespace genesis
