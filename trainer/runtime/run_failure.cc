#include "trainer/runtime/run_failure.h"

#include <sys/resource.h>

#include <stdexcept>
#include <system_error>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "base/text/text.h"
#include "trainer/runtime/torch_errors.h"

namespace genesis {
namespace {

constexpr size_t kRoom = 512;  // Room for the text around torch's message.

bool IsOutOfThreads(const std::exception& error) {
  const auto* const system = dynamic_cast<const std::system_error*>(&error);
  return system != nullptr && system->code() == std::errc::resource_unavailable_try_again;
}

// Returns the limit of this process's address space and a cure; "" if there is no limit.
std::string AddressSpaceText() {
  constexpr rlim_t kMebibyte = 1024 * 1024;
  rlimit limit = {};
  if (getrlimit(RLIMIT_AS, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY) return "";
  return absl::StrCat("the process may use ", limit.rlim_cur / kMebibyte,
                      " MiB of address space (ulimit -v), of which LibTorch reserves more than it "
                      "uses: lift that limit, and bound memory by a cgroup");
}

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
    const std::string limit = AddressSpaceText();
    return {training::v1::FAILURE_CAUSE_OUT_OF_MEMORY,
            absl::StrCat("no memory left: ", what,
                         "; lower training.batch_size or the size of the model",
                         limit.empty() ? "" : "; ", limit)};
  }
  if (IsOutOfThreads(error)) {
    const std::string limit = AddressSpaceText();
    return {training::v1::FAILURE_CAUSE_INTERNAL,
            absl::StrCat("a thread could not be created: ", what, "; ",
                         limit.empty() ? "raise ulimit -u, or pids.max of the cgroup" : limit)};
  }
  if (dynamic_cast<const DataFault*>(&error) != nullptr) {
    return {training::v1::FAILURE_CAUSE_DATA, what};
  }
  // Thrown if an exported module does not fit the job.
  if (dynamic_cast<const std::invalid_argument*>(&error) != nullptr) {
    return {training::v1::FAILURE_CAUSE_CONFIG, what};
  }
  if (IsDeviceFault(error)) {
    // A kernel that finds an index out of range breaks the whole device and reports no details.
    const bool assertion = absl::StrContains(what, "device-side assert");
    return {training::v1::FAILURE_CAUSE_DEVICE,
            absl::StrCat("the device failed: ", what,
                         assertion ? "; usually a label or an index of the data is out of range: "
                                     "train a few steps on the CPU, which names it"
                                   : "")};
  }
  return {training::v1::FAILURE_CAUSE_INTERNAL, what};
}

}  // namespace genesis
