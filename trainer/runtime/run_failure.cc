#include "trainer/runtime/run_failure.h"

#include <stdexcept>
#include <system_error>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "base/text/text.h"
#include "trainer/models/module_faults.h"

namespace genesis {
namespace {

constexpr size_t kRoom = 256;  // For the words around those of torch.

}  // namespace

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
  const std::string what = BoundedText(TorchText(error), kMaxMessageBytes - kRoom);
  if (IsOutOfMemory(error)) {
    return {training::v1::FAILURE_CAUSE_OUT_OF_MEMORY,
            absl::StrCat("no memory left: ", what,
                         "; lower training.batch_size or the size of the model")};
  }
  if (dynamic_cast<const DataFault*>(&error) != nullptr) {
    return {training::v1::FAILURE_CAUSE_DATA, what};
  }
  // A scripted module does not fit the job.
  if (dynamic_cast<const std::invalid_argument*>(&error) != nullptr) {
    return {training::v1::FAILURE_CAUSE_CONFIG, what};
  }
  const auto* const system = dynamic_cast<const std::system_error*>(&error);
  if (system != nullptr && system->code() == std::errc::resource_unavailable_try_again) {
    return {training::v1::FAILURE_CAUSE_INTERNAL,
            absl::StrCat("no thread could be started: ", what,
                         "; the address space, the memory or the number of threads of this process "
                         "is limited: raise ulimit -v, ulimit -u, TasksMax= of its unit, or the "
                         "pids limit of its container")};
  }
  if (IsDeviceFault(error)) {
    // A kernel that finds an index out of range takes the whole device down, and says no more.
    const bool assertion = absl::StrContains(what, "device-side assert");
    return {training::v1::FAILURE_CAUSE_DEVICE,
            absl::StrCat("the device failed: ", what,
                         assertion ? "; mostly a label or an index of the data is out of range: "
                                     "train a few steps on the CPU, which says which one"
                                   : "")};
  }
  return {training::v1::FAILURE_CAUSE_INTERNAL, what};
}

}  // namespace genesis
