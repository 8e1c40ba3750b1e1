#pragma once

#include <map>
#include <string>
#include <vector>

#include "base/text/field_error.h"
#include "genesis/training/v1/sweep.pb.h"

// The jobs of a sweep: the job in its specification, changed by its parameters and its search. A
// job depends only on the specification and the trial's number, so a restarted daemon continues
// with the same trials.
namespace genesis {

inline constexpr int kMaxTrials = 1000;
// A job ID of 63 bytes has room for it, '-' and a trial's number.
inline constexpr size_t kMaxSweepIdBytes = 58;

// Returns `spec` with the defaults of its own fields filled in, but not those of its job.
training::v1::SweepSpec WithSweepDefaults(training::v1::SweepSpec spec);

// Returns the errors of the specification, including those of the first trial whose job has any.
// An error names the field as in SweepSpec, such as "parameters[0].range"; one of a job is
// preceded by the trial and its values. Accepts specifications with or without defaults.
std::vector<FieldError> ValidateSweep(const training::v1::SweepSpec& spec);

// Returns the number of trials of a valid specification: 1 to kMaxTrials.
int CountTrials(const training::v1::SweepSpec& spec);

// Returns the values of the trial's fields, keyed by field.
std::map<std::string, std::string> TrialParameters(const training::v1::SweepSpec& spec, int number);

// Returns "<sweep ID>-007".
std::string TrialJobId(const std::string& sweep_id, int number);

// Returns the job of the trial, with its labels.
training::v1::JobSpec TrialJob(const training::v1::Sweep& sweep, int number);

}  // namespace genesis
