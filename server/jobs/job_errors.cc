#include "server/jobs/job_errors.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "base/text/field_error.h"

namespace genesis {

absl::Status NoSuchJob(const std::string& id) {
  return absl::NotFoundError(
      absl::StrCat("there is no job \"", id, "\"; `genesisctl jobs` lists them"));
}

absl::Status NoSuchCheckpoint(const std::string& id) {
  return absl::NotFoundError(absl::StrCat("there is no checkpoint ", QuoteValue(id),
                                          "; `genesisctl checkpoints` lists them"));
}

training::v1::Failure MakeFailure(training::v1::FailureCause cause, std::string message) {
  training::v1::Failure failure;
  failure.set_cause(cause);
  failure.set_message(std::move(message));
  failure.set_exit_code(-1);
  return failure;
}

}  // namespace genesis
