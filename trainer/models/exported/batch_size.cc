#include "trainer/models/exported/batch_size.h"

#include <algorithm>
#include <cstdint>

#include "absl/strings/str_cat.h"
#include "config/job/field_rules.h"
#include "trainer/models/exported/exported_file.h"

namespace genesis {

void FillBatchSize(training::v1::JobSpec& spec) {
  training::v1::TrainingSpec& training = *spec.mutable_training();
  if (!spec.model().has_exported() || training.batch_size() != 0) return;
  const auto only = ExportedFile::BatchSizeOf(spec.model().exported().path());
  if (only.ok() && *only) training.set_batch_size(static_cast<int32_t>(**only));
  FillDefaults(training);
}

absl::Status CheckBatchSize(const training::v1::JobSpec& spec, const Dataset& dataset,
                            const ExportedFile& file) {
  if (!file.batch_size) return absl::OkStatus();
  const int64_t asked = spec.training().batch_size();
  if (asked != *file.batch_size) {
    return absl::InvalidArgumentError(absl::StrCat(
        "training.batch_size is ", asked, "; accepted: ", *file.batch_size,
        ", the size of the batches that ", file.path,
        " takes, which was exported with dynamic_batch=False; remove training.batch_size, or "
        "export the module for that size"));
  }
  if (spec.scheduling().shrink_on_out_of_memory()) {
    return absl::InvalidArgumentError(absl::StrCat(
        "scheduling.shrink_on_out_of_memory is true, which makes batches smaller, and ", file.path,
        " takes batches of ", asked,
        " examples alone (dynamic_batch=False); remove shrink_on_out_of_memory"));
  }
  const int64_t held_out = dataset.size() - dataset.training_size();
  if (std::min(held_out, dataset.training_size()) >= asked) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(
      "model.exported.path is ", file.path, ", which takes batches of ", asked,
      " examples alone (dynamic_batch=False), and the dataset has ", dataset.training_size(),
      " to train on and ", held_out, " held out; accepted: ", asked,
      " or more of each; change the holdout_fraction of the dataset, give it more examples, or "
      "export the module with a smaller batch"));
}

}  // namespace genesis
