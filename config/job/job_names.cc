#include "config/job/job_names.h"

#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"

namespace genesis {

using training::v1::FailureCause;
using training::v1::JobState;

std::string JobStateName(JobState state) {
  if (!training::v1::JobState_IsValid(state)) return absl::StrCat(static_cast<int>(state));
  return std::string(absl::StripPrefix(training::v1::JobState_Name(state), "JOB_STATE_"));
}

std::string FailureCauseName(FailureCause cause) {
  if (!training::v1::FailureCause_IsValid(cause)) return absl::StrCat(static_cast<int>(cause));
  return std::string(absl::StripPrefix(training::v1::FailureCause_Name(cause), "FAILURE_CAUSE_"));
}

bool IsFinal(JobState state) {
  return state == training::v1::JOB_STATE_SUCCEEDED || state == training::v1::JOB_STATE_FAILED ||
         state == training::v1::JOB_STATE_CANCELLED;
}

}  // namespace genesis
