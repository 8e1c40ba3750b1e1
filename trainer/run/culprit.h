#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "genesis/training/v1/job.pb.h"
#include "trainer/models/model.h"
#include "trainer/precision/format.h"
#include "trainer/run/train_step.h"

namespace genesis {

// What can be wrong with a step that was not finite; Incident.verdict.
enum class Verdict {
  kData,        // The batch itself holds a NaN, an Inf, or a number beyond FP16's range.
  kWeights,     // A parameter is not finite.
  kPrecision,   // The same batch is finite in FP32.
  kDivergence,  // It is not finite in FP32 either.
  kPassed,      // Finite when made again: a fault that does not repeat.
};

std::string VerdictName(Verdict verdict);

struct Investigation {
  Verdict verdict = Verdict::kPassed;
  int32_t micro_batch = -1;             // First that is not finite when made again.
  std::string module;                   // "encoder.0 (aten::linear)": first non-finite output.
  std::vector<std::string> parameters;  // With a non-finite gradient in the step itself.
  std::vector<int64_t> examples;        // Of that micro-batch.

  // Sets the fields of an incident that this knows.
  void Describe(training::v1::Incident& incident) const;
};

// Finds out why a step was not finite: makes each of its micro-batches once more under an observer
// of every operator, in the step's format and then in FP32, with the weights as they are now (a
// step that is not finite changes none). Slow, for it looks at every number; changes nothing but
// gradients, which the next step forgets. `rehearsals` spoil the batches as they did in `step`, and
// the loss is scaled by `loss_scale` as it was.
Investigation Investigate(const StepParts& parts, const StepFormat& format,
                          const StepEvidence& evidence, int64_t step, double loss_scale);

// Of what the ranks found of the same step, what the first of them found that made it again, so
// that all decide alike; `own` where none did.
Investigation FirstToFind(RankGroup& ranks, Investigation own);

}  // namespace genesis
