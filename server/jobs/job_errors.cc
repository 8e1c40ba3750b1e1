#include "server/jobs/job_errors.h"

#include "absl/strings/str_cat.h"

namespace genesis {

absl::Status NoSuchJob(const std::string& id) {
  return absl::NotFoundError(
      absl::StrCat("there is no job \"", id, "\"; `genesisctl jobs` lists them"));
}

}  // namespace genesis
