// The section scheduling: how a job shares the machine.
#include <algorithm>
#include <string>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "config/job/job_sections.h"

namespace genesis {
namespace {

using training::v1::JobSpec;
using training::v1::SchedulingSpec;

constexpr int kMaxLabels = 64;
constexpr size_t kLongestName = 63;
constexpr size_t kLongestLabelValue = 255;
constexpr double kLongestStopGrace = 86400;

// 1 to 63 letters, digits and characters of `besides`.
bool IsName(const std::string& name, const std::string& besides) {
  return !name.empty() && name.size() <= kLongestName &&
         std::all_of(name.begin(), name.end(), [&](char c) {
           return absl::ascii_isalnum(static_cast<unsigned char>(c)) ||
                  besides.find(c) != std::string::npos;
         });
}

}  // namespace

void CheckPriority(const std::string& path, int priority, Faults& faults) {
  if (priority == 0) return;
  faults.CheckWhole(path, priority, -100, 100);
}

void CheckLabels(const std::string& path,
                 const google::protobuf::Map<std::string, std::string>& labels, Faults& faults) {
  if (labels.size() > kMaxLabels) {
    faults.Add(path, absl::StrCat(labels.size(), " labels"), absl::StrCat("at most ", kMaxLabels));
  }
  for (const auto& [key, value] : labels) {
    if (!IsName(key, "._/-")) {
      faults.Add(path, "",
                 absl::StrCat("the key ", QuoteValue(key),
                              " is not accepted; accepted: 1 to 63 letters, digits, '.', '_', '/' "
                              "and '-'"));
    }
    if (value.size() > kLongestLabelValue) {
      faults.Add(absl::StrCat(path, ".", key), QuoteValue(value),
                 absl::StrCat("at most ", kLongestLabelValue, " bytes"));
    }
  }
}

void FillScheduling(JobSpec& spec) {
  SchedulingSpec& scheduling = *spec.mutable_scheduling();
  if (scheduling.stop_grace_seconds() == 0) scheduling.set_stop_grace_seconds(60);
}

void CheckScheduling(const JobSpec& spec, Faults& faults) {
  const SchedulingSpec& scheduling = spec.scheduling();
  CheckPriority("scheduling.priority", scheduling.priority(), faults);
  if (!scheduling.owner().empty() && !IsName(scheduling.owner(), "._@-")) {
    faults.Add("scheduling.owner", QuoteValue(scheduling.owner()),
               "1 to 63 letters, digits, '.', '_', '@' and '-'");
  }
  CheckLabels("scheduling.labels", scheduling.labels(), faults);
  faults.CheckNumber("scheduling.deadline_seconds", scheduling.deadline_seconds(),
                     scheduling.deadline_seconds() > 0, "a finite number > 0, or 0 for none");
  faults.CheckWhole("scheduling.memory_bytes", scheduling.memory_bytes(), 1, kMaxInt64);
  faults.CheckNumber(
      "scheduling.stop_grace_seconds", scheduling.stop_grace_seconds(),
      scheduling.stop_grace_seconds() >= 1 && scheduling.stop_grace_seconds() <= kLongestStopGrace,
      "1 to 86400");
  const training::v1::TrainingSpec& training = spec.training();
  if (scheduling.shrink_on_out_of_memory() && training.batch_size() % 2 != 0 &&
      training.batch_size() != 0) {
    faults.Add("scheduling.shrink_on_out_of_memory", "",
               absl::StrCat("true needs an even training.batch_size, which is ",
                            training.batch_size(), "; change one of the two"));
  }
  if (!spec.start_from_checkpoint().empty() && !spec.model().initial_weights().empty()) {
    faults.Add("start_from_checkpoint", "",
               absl::StrCat(QuoteValue(spec.start_from_checkpoint()),
                            " conflicts with model.initial_weights ",
                            QuoteValue(spec.model().initial_weights()), "; give one of the two"));
  }
}

}  // namespace genesis
