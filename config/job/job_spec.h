#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "base/text/field_error.h"
#include "genesis/training/v1/job.pb.h"

namespace genesis {

// The daemon's FP16_* settings; what a job that names none gets.
struct LossScaleSettings {
  double initial = 65536.0;
  double growth_factor = 2.0;
  double backoff_factor = 0.5;
  int64_t growth_interval = 2000;
};

// `spec` with every default of job.proto written out, so that a stored job is reproducible after a
// default changes. Fields that hold an out-of-range value are left as they are for ValidateJobSpec,
// and so is -1 where it asks for "none". The loss scale is filled in only for the modes that may
// have one (UNSPECIFIED and MIXED_FP16). The batch size of an exported module is left to the worker
// (FillBatchSize). Idempotent.
training::v1::JobSpec WithDefaults(training::v1::JobSpec spec, const LossScaleSettings& loss_scale);

// Every fault of `spec`, by field path, in the order of job.proto; empty when it can be trained.
// First the sizes of every message (base/text/message_limits.h); where one is exceeded nothing else
// is looked at. Then enums, ranges, required fields and conflicts (max_steps with epochs; a loss
// scale with a mode that has none names both places). Looks at no file: the caller that knows the
// dataset root checks that an absolute path lies in it. Accepts specifications with or without
// defaults.
std::vector<FieldError> ValidateJobSpec(const training::v1::JobSpec& spec);

// Whether several processes may train the job, each on examples of its own.
bool IsDistributed(const training::v1::JobSpec& spec);

// How many processes a daemon with `slots` starts for the job: distributed.ranks, or with
// training.use_ddp alone one for each slot; at least 1.
int RanksOf(const training::v1::JobSpec& spec, int slots);

// The fewest of them that it may be trained by.
int FewestRanksOf(const training::v1::JobSpec& spec, int slots);

// Who starts the processes; never UNSPECIFIED.
training::v1::LauncherKind LauncherOf(const training::v1::JobSpec& spec);

// "SLURM": the enum's name without its prefix.
std::string LauncherName(training::v1::LauncherKind launcher);

// Whether a cluster is asked for the job's workers, which then take no slots of the daemon.
bool IsSubmitted(const training::v1::JobSpec& spec);

// The form of a job id, and of other names.
inline constexpr absl::string_view kNameForm =
    "1 to 63 lower-case letters, digits and '-', the first no '-'";

// "" when `id` is of that form, else what is wrong with it.
std::string JobIdFault(const std::string& id);

// The same for another name of that form; `field` begins the message.
std::string NameFault(const std::string& field, const std::string& name);

}  // namespace genesis
