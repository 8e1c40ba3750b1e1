#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "base/text/field_error.h"
#include "genesis/training/v1/job.pb.h"

namespace genesis {

// The daemon's FP16_* settings, for jobs that set none.
struct LossScaleSettings {
  double initial = 65536.0;
  double growth_factor = 2.0;
  double backoff_factor = 0.5;
  int64_t growth_interval = 2000;
};

// Returns `spec` with every default of job.proto written out, so that a stored job stays
// reproducible after a default changes. Out-of-range values are left for ValidateJobSpec, and so is
// -1 if it means "none". The loss scale is filled in only for modes that may have one (UNSPECIFIED
// and MIXED_FP16). The batch size of an exported module is left to the worker (FillBatchSize).
// Idempotent.
training::v1::JobSpec WithDefaults(training::v1::JobSpec spec, const LossScaleSettings& loss_scale);

// Returns every error of `spec`, by field path, in the order of job.proto; empty if it can be
// trained. Checks the sizes of every message first (base/text/message_limits.h); if one is
// exceeded, nothing else. Then enums, ranges, required fields and conflicts (max_steps with epochs;
// a loss scale with a mode that has none names both places). Reads no file: the caller, which has
// the dataset root, checks that an absolute path lies in it. Accepts specifications with or without
// defaults.
std::vector<FieldError> ValidateJobSpec(const training::v1::JobSpec& spec);

// Returns true if several processes may train the job, each on examples of its own.
bool IsDistributed(const training::v1::JobSpec& spec);

// Returns the number of processes that a daemon with `slots` starts for the job: distributed.ranks,
// or with training.use_ddp alone one per slot; at least 1.
int RanksOf(const training::v1::JobSpec& spec, int slots);

// Returns the minimum number of processes that may train the job.
int FewestRanksOf(const training::v1::JobSpec& spec, int slots);

// Returns the launcher of the processes; never UNSPECIFIED.
training::v1::LauncherKind LauncherOf(const training::v1::JobSpec& spec);

// Returns "SLURM": the enum's name without its prefix.
std::string LauncherName(training::v1::LauncherKind launcher);

// Returns true if a cluster provides the job's workers, which then take no slots of the daemon.
bool IsSubmitted(const training::v1::JobSpec& spec);

// The form of a job id, and of other names.
inline constexpr absl::string_view kNameForm =
    "1 to 63 lower-case letters, digits and '-', the first no '-'";

// Returns "" if `id` has that form, otherwise the error.
std::string JobIdFault(const std::string& id);

// Same, for another name of that form; `field` starts the message.
std::string NameFault(const std::string& field, const std::string& name);

}  // namespace genesis
