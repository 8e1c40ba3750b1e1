#pragma once

#include <map>
#include <optional>
#include <string>

#include "genesis/training/v1/job.pb.h"
#include "genesis/training/v1/worker_service.pb.h"
#include "server/workers/worker_events.h"

namespace genesis {

// The end of one rank: a failure that it reported, or an exit without a report.
struct RankEnd {
  int rank = 0;
  std::optional<training::v1::Finished> finished;
  WorkerExit exit;  // Set if the rank did not report.
  // The cause in one sentence, for the other ranks and the log.
  std::string why;
  // True if the rank ended only because another rank had ended.
  bool follows = false;
};

// The gang attempts that are ending because a rank failed or is gone. An attempt is over when all
// its ranks have ended, so that two attempts never train concurrently. Its cause is the first end
// that did not follow from the end of another rank.
//
// Owner: JobAttempts. Threads: the writer's only.
class GangEndings {
 public:
  // Records the end of a rank. Idempotent, because a change that the store refused is retried.
  void Note(const std::string& job_id, const RankEnd& end) {
    const auto [cause, first] = causes_.emplace(job_id, end);
    if (!first && cause->second.follows && !end.follows) cause->second = end;
  }
  // Returns the cause of the ending attempt; null if the attempt is not ending.
  const RankEnd* CauseOf(const std::string& job_id) const {
    const auto found = causes_.find(job_id);
    return found == causes_.end() ? nullptr : &found->second;
  }
  // Removes the job's entry when it has left its workers.
  void Forget(const std::string& job_id) { causes_.erase(job_id); }

 private:
  std::map<std::string, RankEnd> causes_;
};

}  // namespace genesis
