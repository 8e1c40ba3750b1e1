#include "config/job/final_state.h"

namespace genesis {

bool IsFinal(training::v1::JobState state) {
  return state == training::v1::JOB_STATE_SUCCEEDED || state == training::v1::JOB_STATE_FAILED ||
         state == training::v1::JOB_STATE_CANCELLED;
}

}  // namespace genesis
