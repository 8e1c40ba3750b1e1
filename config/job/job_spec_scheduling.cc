// The section scheduling: how jobs share the machine.
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/text/text.h"
#include "config/job/field_rules.h"
#include "config/job/job_sections.h"
#include "config/job/key_name.h"

namespace genesis {
namespace {

using training::v1::JobSpec;
using training::v1::SchedulingSpec;

constexpr int kMaxLabels = 64;
constexpr size_t kLongestLabelValue = 255;
constexpr size_t kMaxOwner = 259;  // "jwt:" and a subject of 255 bytes.

// Checks that initial weights have one source, and that a schedule that goes on continues a job.
void CheckBeginning(const JobSpec& spec, Faults& faults) {
  std::vector<std::pair<std::string, std::string>> given;
  for (const auto& [field, value] : std::vector<std::pair<std::string, std::string>>{
           {"start_from_checkpoint", spec.start_from_checkpoint()},
           {"continue_from_checkpoint", spec.continue_from_checkpoint()},
           {"model.initial_weights", spec.model().initial_weights()}}) {
    if (!value.empty()) given.emplace_back(field, value);
  }
  if (given.size() > 1) {
    faults.Add(given[0].first, "",
               absl::StrCat(QuoteValue(given[0].second), " conflicts with ", given[1].first, " ",
                            QuoteValue(given[1].second), "; give one of the two"));
  }
  if (spec.optimizer().schedule().goes_on() && spec.continue_from_checkpoint().empty()) {
    faults.Add("optimizer.schedule.goes_on", "true",
               "false, because there is no continue_from_checkpoint");
  }
}

}  // namespace

void CheckLabels(const std::string& path,
                 const google::protobuf::Map<std::string, std::string>& labels, Faults& faults) {
  if (labels.size() > kMaxLabels) {
    faults.Add(path, absl::StrCat(labels.size(), " labels"), absl::StrCat("at most ", kMaxLabels));
  }
  for (const auto& [key, value] : labels) {
    if (!IsKeyName(key)) {
      faults.Add(
          path, "",
          absl::StrCat("the key ", QuoteValue(key), " is not accepted; accepted: ", kKeyNames));
    }
    if (value.size() > kLongestLabelValue) {
      faults.Add(absl::StrCat(path, ".", key), QuoteValue(value),
                 absl::StrCat("at most ", kLongestLabelValue, " bytes"));
    }
  }
}

void FillScheduling(JobSpec& spec) { FillDefaults(*spec.mutable_scheduling()); }

void CheckScheduling(const JobSpec& spec, Faults& faults) {
  const SchedulingSpec& scheduling = spec.scheduling();
  CheckRanges("scheduling", scheduling, faults);
  const std::string& owner = scheduling.owner();
  if (owner.size() > kMaxOwner || OneLine(owner, 4 * kMaxOwner) != owner) {
    faults.Add("scheduling.owner", QuoteValue(owner),
               absl::StrCat("the name of a caller, at most ", kMaxOwner,
                            " bytes without control characters"));
  }
  CheckLabels("scheduling.labels", scheduling.labels(), faults);
  const training::v1::TrainingSpec& training = spec.training();
  if (scheduling.shrink_on_out_of_memory() && training.batch_size() % 2 != 0 &&
      training.batch_size() != 0) {
    faults.Add("scheduling.shrink_on_out_of_memory", "",
               absl::StrCat("true needs an even training.batch_size, which is ",
                            training.batch_size(), "; change one of the two"));
  }
  CheckBeginning(spec, faults);
}

}  // namespace genesis
