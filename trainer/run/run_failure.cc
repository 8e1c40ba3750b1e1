#include "trainer/run/run_failure.h"

#include <c10/util/Exception.h>

#include <new>
#include <stdexcept>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"

namespace genesis {

void Require(const absl::Status& status, training::v1::FailureCause cause) {
  if (!status.ok()) throw RunFailure{cause, std::string(status.message())};
}

training::v1::Finished FailedRun(const RunFailure& failure) {
  training::v1::Finished finished;
  finished.set_outcome(training::v1::Finished::OUTCOME_FAILED);
  finished.mutable_failure()->set_cause(failure.cause);
  finished.mutable_failure()->set_message(failure.message);
  return finished;
}

RunFailure ExplainException(const std::exception& error) {
  const auto* const torch_error = dynamic_cast<const c10::Error*>(&error);
  const std::string what =
      torch_error != nullptr ? torch_error->what_without_backtrace() : error.what();
  const bool memory = dynamic_cast<const std::bad_alloc*>(&error) != nullptr ||
                      dynamic_cast<const c10::OutOfMemoryError*>(&error) != nullptr ||
                      absl::StrContains(what, "can't allocate memory") ||
                      absl::StrContains(what, "not enough memory");
  if (memory) {
    return {training::v1::FAILURE_CAUSE_OUT_OF_MEMORY,
            absl::StrCat("no memory left: ", what,
                         "; lower training.batch_size or the size of the model")};
  }
  // A scripted module's outputs do not fit the job.
  if (dynamic_cast<const std::invalid_argument*>(&error) != nullptr) {
    return {training::v1::FAILURE_CAUSE_CONFIG, what};
  }
  if (dynamic_cast<const c10::AcceleratorError*>(&error) != nullptr ||
      absl::StrContains(what, "CUDA error") || absl::StrContains(what, "cuDNN error")) {
    return {training::v1::FAILURE_CAUSE_DEVICE, absl::StrCat("the device failed: ", what)};
  }
  return {training::v1::FAILURE_CAUSE_INTERNAL, what};
}

}  // namespace genesis
