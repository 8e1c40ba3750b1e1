#pragma once

#include <map>
#include <optional>
#include <string>

#include "genesis/training/v1/job.pb.h"
#include "genesis/training/v1/worker_service.pb.h"
#include "server/workers/worker_events.h"

namespace genesis {

// How one rank ended: with a failure that it told, or without a word.
struct RankEnd {
  int rank = 0;
  std::optional<training::v1::Finished> finished;
  WorkerExit exit;  // Where it did not tell.
  // Why its attempt is over, in one sentence; for the other ranks and the log.
  std::string why;
  // It ended because another one had.
  bool follows = false;
};

// The attempts of gangs that are ending because a rank has failed or is gone. Such an attempt is
// over for the job once all ranks have ended, so that no two attempts ever train at one time; its
// cause is then the first end that did not follow from another.
//
// Owner: JobAttempts. Threads: the writer's.
class GangEndings {
 public:
  // A rank has ended. May be told twice, for a change that the store refuses is made again.
  void Note(const std::string& job_id, const RankEnd& end) {
    const auto [cause, first] = causes_.emplace(job_id, end);
    if (!first && cause->second.follows && !end.follows) cause->second = end;
  }
  // Why the attempt is ending; null where it is not.
  const RankEnd* CauseOf(const std::string& job_id) const {
    const auto found = causes_.find(job_id);
    return found == causes_.end() ? nullptr : &found->second;
  }
  // The job is off its workers.
  void Forget(const std::string& job_id) { causes_.erase(job_id); }

 private:
  std::map<std::string, RankEnd> causes_;
};

}  // namespace genesis
