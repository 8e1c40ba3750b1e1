#pragma once

#include "genesis/training/v1/job.pb.h"
#include "genesis/training/v1/sweep.pb.h"

// The rules by which trials are compared and stopped (SuccessiveHalving in sweep.proto).
namespace genesis {

// Returns true if value `a` of the sweep's metric is better than `b`. NaN is the worst.
bool IsBetter(const training::v1::SweepSpec& spec, double a, double b);

// Adds an evaluation to a trial of the sweep: its step, best value and rungs. Evaluations made
// again after a restart or a rewind replace the rungs from their step on. Returns by how many rungs
// the trial went beyond those it had reached.
int NoteEvaluation(const training::v1::Evaluation& evaluation, const training::v1::Sweep& sweep,
                   training::v1::Trial& trial);

// Returns that the evaluation lacks the sweep's metric, and which metrics it has; "" if it has it.
std::string MissingMetric(const training::v1::SweepSpec& spec,
                          const training::v1::Evaluation& evaluation);

// Returns why the trial loses at the newest rung it reached, one clause; "" if it goes on.
std::string WhyItLoses(const training::v1::Sweep& sweep, const training::v1::Trial& trial);

// Sets Sweep.best_trial: of the trials that were not stopped early if one of them has a value.
void SetBestTrial(training::v1::Sweep& sweep);

}  // namespace genesis
