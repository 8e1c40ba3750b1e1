#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "base/text/field_error.h"
#include "genesis/training/v1/job.pb.h"

namespace genesis {

// The daemon's FP16_* settings, for jobs that do not set their own.
struct LossScaleSettings {
  double initial = 65536.0;
  double growth_factor = 2.0;
  double backoff_factor = 0.5;
  int64_t growth_interval = 2000;
};

// Returns `spec` with all defaults of job.proto filled in, so that a stored job stays
// reproducible if a default changes. Out-of-range values are kept for ValidateJobSpec, as is -1
// where it means "none". The loss scale is filled in only for modes that may have one (UNSPECIFIED,
// AUTO, FP16 and MIXED_FP16). A missing batch size of an exported module is left to the worker
// (FillBatchSize) unless the batch may shrink. Idempotent.
training::v1::JobSpec WithDefaults(training::v1::JobSpec spec, const LossScaleSettings& loss_scale);

// Returns the errors of `spec`, each with the path of its field; empty if it can be trained. Checks
// the sizes of lists, maps and strings first (base/text/message_limits.h) and stops if one is too
// large. Then checks enums, and section by section ranges, required fields and conflicts (such as
// max_steps with epochs; the error names both fields). Reads no file: the caller, which knows the
// dataset root, checks that absolute paths are inside it. Accepts specifications with or without
// defaults.
std::vector<FieldError> ValidateJobSpec(const training::v1::JobSpec& spec);

// Returns true if several processes may train the job, each on its own examples.
bool IsDistributed(const training::v1::JobSpec& spec);

// Returns the number of processes that a daemon with `slots` slots starts for the job:
// distributed.ranks or, with only training.use_ddp, one per slot; at least 1.
int RanksOf(const training::v1::JobSpec& spec, int slots);

// Returns the minimum number of processes that may train the job.
int FewestRanksOf(const training::v1::JobSpec& spec, int slots);

// Returns the launcher of the processes, which is never UNSPECIFIED.
training::v1::LauncherKind LauncherOf(const training::v1::JobSpec& spec);

// Returns true if a cluster provides the job's workers, which take no slots of the daemon.
bool IsSubmitted(const training::v1::JobSpec& spec);

// Form of job IDs and other names.
inline constexpr absl::string_view kNameForm =
    "1 to 63 lower-case letters, digits and '-', the first no '-'";

// Returns "" if `id` has that form, otherwise the error.
std::string JobIdFault(const std::string& id);

// Same, for another name of that form. `field` is its name in the error.
std::string NameFault(const std::string& field, const std::string& name);

}  // namespace genesis
