#pragma once

#include <cstdint>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "trainer/checkpoint/shards.h"

namespace genesis {

// The checkpoints of one job: files <job id>-step-<12 digits>.pt in one folder.
//
// Owner: the run. Threads: one. Failure: only Prepare can fail; what cannot be removed stays.
class CheckpointFolder {
 public:
  CheckpointFolder(const std::string& folder, const std::string& job_id);

  // Makes the folder and removes what a killed worker left half written: temporary files,
  // manifests without their checkpoint, and shards that no checkpoint lists.
  absl::Status Prepare();

  // Absolute.
  std::string Path(int64_t step) const;
  // "<job id>-step-<step>"
  std::string Id(int64_t step) const;

  // Paths, newest first.
  std::vector<std::string> Paths() const;
  // The ids of those of `paths` that name checkpoints of this job and are not there.
  std::vector<std::string> Missing(const std::vector<std::string>& paths) const;

  // Removes a shard, with its manifest, of a checkpoint that could not be made. One that the
  // checkpoint of its step lists stays.
  void RemoveShard(int64_t step, const ShardPlace& place) const;

  // Removes all but some checkpoints, with manifests and shards, and returns the ids of the
  // removed. Kept are the newest `keep_last` (at least one) up to `step` and, as their manifests
  // say, the `keep_best` with the lowest held-out loss; those of later steps are of a course that
  // the job has left, and go first. Where none of these verifies, the newest that does is kept too;
  // that of `verified_step` just did.
  std::vector<std::string> Retain(int64_t keep_last, int64_t step, int64_t keep_best = 0,
                                  int64_t verified_step = -1) const;

 private:
  std::optional<int64_t> StepOf(const std::string& name) const;
  std::vector<int64_t> Steps() const;
  void RemoveStrayShards() const;
  std::set<int64_t> Best(const std::vector<int64_t>& steps, int64_t count) const;

  std::string folder_;
  std::string prefix_;  // "<job id>-step-"
};

}  // namespace genesis
