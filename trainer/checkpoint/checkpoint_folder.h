#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "trainer/checkpoint/shards.h"

namespace genesis {

// The checkpoints of one job: files <job id>-step-<12 digits>.pt in one folder.
//
// Owner: the run. Threads: one. Failure: only Prepare can fail; files that cannot be removed stay.
class CheckpointFolder {
 public:
  CheckpointFolder(const std::string& folder, const std::string& job_id);

  // Creates the folder and removes incomplete files of a killed worker: temporary files, manifests
  // without their checkpoint, and shards that no checkpoint lists.
  absl::Status Prepare();

  // Returns the absolute path of the checkpoint of `step`.
  std::string Path(int64_t step) const;
  // Returns "<job id>-step-<step>".
  std::string Id(int64_t step) const;

  // Returns the paths of the checkpoints in the folder, newest first.
  std::vector<std::string> Paths() const;
  // Returns the IDs of the checkpoints of this job in `paths` that do not exist.
  std::vector<std::string> Missing(const std::vector<std::string>& paths) const;

  // Removes a shard, with its manifest, of a checkpoint that failed. Keeps a shard that the
  // checkpoint of its step lists.
  void RemoveShard(int64_t step, const ShardPlace& place) const;

  // Returns a checkpoint's score (lower is better), such as its loss; nullopt if it is unknown.
  using Badness = std::function<std::optional<double>(int64_t step)>;

  // Removes old checkpoints, with manifests and shards, and returns the removed IDs. Keeps the
  // newest `keep_last` (at least one) up to `step` and the `keep_best` with the lowest `badness`,
  // by default the held-out loss in their manifests. Removes checkpoints of later steps, which a
  // rewind has made obsolete. If no kept checkpoint verifies, also keeps the newest other one that
  // does, of a later step only as a last resort. `verified_step` is known to verify.
  std::vector<std::string> Retain(int64_t keep_last, int64_t step, int64_t keep_best = 0,
                                  int64_t verified_step = -1,
                                  const Badness& badness = nullptr) const;

 private:
  std::optional<int64_t> StepOf(const std::string& name) const;
  std::vector<int64_t> Steps() const;
  void RemoveStrayShards() const;
  std::optional<double> HeldOutLoss(int64_t step) const;
  std::set<int64_t> Best(const std::vector<int64_t>& steps, int64_t count,
                         const Badness& badness) const;

  std::string folder_;
  std::string prefix_;  // "<job id>-step-"
};

}  // namespace genesis
