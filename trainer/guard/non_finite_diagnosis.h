#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "genesis/training/v1/job.pb.h"
#include "trainer/distributed/rank_group.h"
#include "trainer/step/training_session.h"

namespace genesis {

// The cause of a step that was not finite, reported as Incident.verdict.
enum class Verdict {
  kData,        // The batch holds a NaN, an Inf, or a number beyond FP16's range.
  kLabels,      // No label of the batch counts, so its mean loss is 0 / 0.
  kWeights,     // A parameter is not finite.
  kPrecision,   // The same batch is finite in FP32.
  kDivergence,  // The batch is not finite in FP32 either.
  kPassed,      // Finite when recomputed: a fault that does not repeat.
};

std::string VerdictName(Verdict verdict);

// The diagnosis of a step that was not finite.
struct NonFiniteDiagnosis {
  Verdict verdict = Verdict::kPassed;
  int32_t micro_batch = -1;             // First micro-batch that is not finite when recomputed.
  std::string module;                   // First non-finite output: "encoder.0 (aten::linear)".
  std::vector<std::string> parameters;  // Parameters with a non-finite gradient in the step itself.
  std::vector<int64_t> examples;        // Examples of that micro-batch.

  // Sets verdict, micro_batch, module, parameters and examples.
  void Describe(training::v1::Incident& incident) const;
};

// Determines why the step that was last read was not finite. Recomputes its micro-batches while it
// observes every operator, up to the first that is not finite, and that one also in FP32. Uses the
// current weights, because a step that is not finite changes none. With several ranks, returns the
// result of the first rank that found a cause. Slow, because it checks every number. Changes only
// gradients, which the next step resets. Faults injected into the batch and `loss_scale` apply as
// they did in `step`.
NonFiniteDiagnosis DiagnoseLastStep(TrainingSession& session, int64_t step, double loss_scale);

// Returns the diagnosis of the first rank that found a cause, so that all ranks decide alike, or
// `own` if none did. Collective: every rank calls it.
NonFiniteDiagnosis FirstDiagnosis(RankGroup& ranks, NonFiniteDiagnosis own);

}  // namespace genesis
