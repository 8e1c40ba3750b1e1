// The section scheduling: how jobs share the machine.
#include <algorithm>
#include <string>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "base/text/text.h"
#include "config/job/field_rules.h"
#include "config/job/job_sections.h"

namespace genesis {
namespace {

using training::v1::JobSpec;
using training::v1::SchedulingSpec;

constexpr int kMaxLabels = 64;
constexpr size_t kLongestName = 63;
constexpr size_t kLongestLabelValue = 255;
constexpr size_t kMaxOwner = 259;  // "jwt:" and a subject of 255 bytes.

// Accepts 1 to 63 letters, digits, '.', '_', '/' and '-'.
bool IsLabelKey(const std::string& name) {
  constexpr absl::string_view kBesides = "._/-";
  return !name.empty() && name.size() <= kLongestName &&
         std::all_of(name.begin(), name.end(), [&](char c) {
           return absl::ascii_isalnum(static_cast<unsigned char>(c)) ||
                  kBesides.find(c) != absl::string_view::npos;
         });
}

}  // namespace

void CheckLabels(const std::string& path,
                 const google::protobuf::Map<std::string, std::string>& labels, Faults& faults) {
  if (labels.size() > kMaxLabels) {
    faults.Add(path, absl::StrCat(labels.size(), " labels"), absl::StrCat("at most ", kMaxLabels));
  }
  for (const auto& [key, value] : labels) {
    if (!IsLabelKey(key)) {
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
  if (!spec.start_from_checkpoint().empty() && !spec.model().initial_weights().empty()) {
    faults.Add("start_from_checkpoint", "",
               absl::StrCat(QuoteValue(spec.start_from_checkpoint()),
                            " conflicts with model.initial_weights ",
                            QuoteValue(spec.model().initial_weights()), "; give one of the two"));
  }
}

}  // namespace genesis
