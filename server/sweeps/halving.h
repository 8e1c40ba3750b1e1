#pragma once

#include "genesis/training/v1/job.pb.h"
#include "genesis/training/v1/sweep.pb.h"

// The rules by which trials are compared and stopped (SuccessiveHalving in sweep.proto).
namespace genesis {

// Returns true if value `a` of the sweep's metric is better than `b`. NaN is the worst.
bool IsBetter(const training::v1::SweepSpec& spec, double a, double b);

// Adds an evaluation to a trial of the sweep: its step, best value and rungs. Evaluations that are
// repeated after a restart or a rewind replace the rungs from their step on. Returns the number of
// rungs that the trial has reached for the first time.
int NoteEvaluation(const training::v1::Evaluation& evaluation, const training::v1::Sweep& sweep,
                   training::v1::Trial& trial);

// Returns "" if the evaluation has the sweep's metric, otherwise an error with the ones it has.
std::string MissingMetric(const training::v1::SweepSpec& spec,
                          const training::v1::Evaluation& evaluation);

// Returns why the trial loses at the newest rung it reached, one clause; "" if it continues.
std::string WhyItLoses(const training::v1::Sweep& sweep, const training::v1::Trial& trial);

// Sets Sweep.best_trial. Trials that were stopped early count only if no other has a value.
void SetBestTrial(training::v1::Sweep& sweep);

}  // namespace genesis
