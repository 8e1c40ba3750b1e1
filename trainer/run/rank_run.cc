#include "trainer/run/rank_run.h"

#include <string>
#include <vector>

#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "trainer/distributed/rank_group.h"
#include "trainer/run/run_failure.h"

namespace genesis {

training::v1::Finished RunRank(const training::v1::StartJob& start, const RankPlace& place,
                               const training::v1::DeviceInfo& device, RunControl& control,
                               RunObserver& observer) {
  try {
    RankGroup ranks(place);
    // Another rank may see a file later than the first.
    const std::vector<std::string> paths = absl::StrSplit(
        ranks.FromFirst(absl::StrJoin(start.resume_from(), "\n")), '\n', absl::SkipEmpty());
    training::v1::StartJob same = start;
    same.mutable_resume_from()->Assign(paths.begin(), paths.end());
    return RunTraining(same, device, control, observer, &ranks);
  } catch (const RunFailure& failure) {
    training::v1::Finished finished;
    finished.set_outcome(training::v1::Finished::OUTCOME_FAILED);
    finished.mutable_failure()->set_cause(failure.cause);
    finished.mutable_failure()->set_message(failure.message);
    return finished;
  }
}

}  // namespace genesis
