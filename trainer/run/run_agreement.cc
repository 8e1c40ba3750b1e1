#include "trainer/run/run_agreement.h"

#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "trainer/runtime/run_failure.h"

namespace genesis {

void RunAgreement::Begin(int64_t step) const {
  if (ranks_ == nullptr) return;
  const std::string own = absl::StrCat(step);
  const std::string first = ranks_->FromFirst(own);
  if (first == own) return;
  throw RunFailure{
      training::v1::FAILURE_CAUSE_CHECKPOINT,
      absl::StrCat("rank ", ranks_->rank(), " resumes at step ", own, " and rank 0 at step ", first,
                   "; all ranks need the same checkpoints, in a folder that all their "
                   "hosts see")};
}

void RunAgreement::Tell(bool time_is_up, double seconds) {
  if (ranks_ == nullptr) return;
  ranks_->SetFlags({.stop = control_.stop_requested(),
                    .checkpoint = control_.TakeCheckpointRequest(),
                    .time_is_up = time_is_up,
                    .seconds = seconds});
  agreed_checkpoint_ = true;
}

bool RunAgreement::TakeCheckpoint() {
  if (ranks_ == nullptr) return control_.TakeCheckpointRequest();
  return std::exchange(agreed_checkpoint_, false) && ranks_->agreed().checkpoint;
}

}  // namespace genesis
