#include "config/job/job_spec.h"

#include <algorithm>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "base/text/message_limits.h"
#include "config/job/field_rules.h"
#include "config/job/job_sections.h"

namespace genesis {

using training::v1::JobSpec;

JobSpec WithDefaults(JobSpec spec, const LossScaleSettings& loss_scale) {
  // The file of an exported module may accept only one batch size, which the worker reads from it.
  // If the batch may shrink, its size is needed now.
  const bool size_is_of_file = spec.model().has_exported() && spec.training().batch_size() == 0 &&
                               !spec.scheduling().shrink_on_out_of_memory();
  FillModel(spec);
  FillDataset(spec);
  FillTraining(spec);
  FillDistributed(spec);
  FillPrecision(spec, loss_scale);
  FillScheduling(spec);
  FillDefaults(spec);
  if (size_is_of_file) spec.mutable_training()->clear_batch_size();
  return spec;
}

std::vector<FieldError> ValidateJobSpec(const JobSpec& spec) {
  // Must precede any loop over values, because a list may fill the whole message.
  std::vector<FieldError> too_long = CheckSizes(spec);
  if (!too_long.empty()) return too_long;
  Faults faults(CheckEnums(spec));
  CheckModel(spec, faults);
  CheckDataset(spec, faults);
  CheckTraining(spec, faults);
  CheckDistributed(spec, faults);
  CheckPrecision(spec, faults);
  CheckScheduling(spec, faults);
  CheckRanges("", spec, faults);
  return faults.Take();
}

std::string JobIdFault(const std::string& id) { return NameFault("job_id", id); }

std::string NameFault(const std::string& field, const std::string& name) {
  constexpr size_t kLongest = 63;
  const bool characters = std::all_of(name.begin(), name.end(), [](char c) {
    return absl::ascii_islower(c) || absl::ascii_isdigit(c) || c == '-';
  });
  if (!name.empty() && name.size() <= kLongest && name.front() != '-' && characters) return "";
  return absl::StrCat(field, " is ", QuoteValue(name), "; accepted: ", kNameForm);
}

}  // namespace genesis
