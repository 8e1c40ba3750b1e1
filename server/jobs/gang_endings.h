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
  // The rank ended because another rank had ended.
  bool follows = false;
};

// The attempts of gangs that are ending because a rank has failed or is gone. The attempt is over
// once all ranks have ended, so that two attempts never train at the same time. Its cause is the
// first end that did not follow from another.
//
// Owner: JobAttempts. Threads: the writer's.
class GangEndings {
 public:
  // Records the end of a rank. Idempotent, because a change refused by the store is made again.
  void Note(const std::string& job_id, const RankEnd& end) {
    const auto [cause, first] = causes_.emplace(job_id, end);
    if (!first && cause->second.follows && !end.follows) cause->second = end;
  }
  // Returns the cause of the ending attempt; null if it is not ending.
  const RankEnd* CauseOf(const std::string& job_id) const {
    const auto found = causes_.find(job_id);
    return found == causes_.end() ? nullptr : &found->second;
  }
  // The job has left its workers.
  void Forget(const std::string& job_id) { causes_.erase(job_id); }

 private:
  std::map<std::string, RankEnd> causes_;
};

}  // namespace genesis
