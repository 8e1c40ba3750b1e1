#include "server/jobs/gang_endings.h"

namespace genesis {

void GangEndings::Note(const std::string& job_id, const RankEnd& end) {
  const auto [cause, first] = causes_.emplace(job_id, end);
  if (!first && cause->second.follows && !end.follows) cause->second = end;
}

const RankEnd* GangEndings::CauseOf(const std::string& job_id) const {
  const auto found = causes_.find(job_id);
  return found == causes_.end() ? nullptr : &found->second;
}

}  // namespace genesis
