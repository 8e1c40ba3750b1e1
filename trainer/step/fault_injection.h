#pragma once

#include <torch/torch.h>

#include <cstdint>
#include <vector>

#include "genesis/training/v1/job.pb.h"
#include "trainer/models/base/model.h"

namespace genesis {

// Injected faults (JobSpec.rehearsals), so that operators see the policy act before they need it.
// All faults except NAN imitate problems of reduced precision, so callers apply them only there.
// Without faults, each call returns immediately.
//
// Threads: immutable.
class FaultInjection {
 public:
  explicit FaultInjection(const training::v1::JobSpec& spec)
      : list_(spec.rehearsals().begin(), spec.rehearsals().end()) {}

  // NAN: sets a value of the first floating-point field. POISON, if the step is `reduced`: adds
  // noise to every such field in a quarter of the examples. Returns whether one applied.
  bool SpoilBatch(int64_t step, int64_t micro_batch, bool reduced, Batch& batch) const;
  // SPIKE: returns the factor of the loss, and with it of every gradient; 1 if none applies.
  double LossFactor(int64_t step, int64_t micro_batch) const;
  // Call in reduced precision only. INF: sets a value of the first parameter's gradient, if there
  // is a loss scale (`scaled`). STALE, SATURATE and UNDERFLOW: change all gradients, which are
  // multiplied by the loss scale if there is one.
  void SpoilGradients(int64_t step, bool scaled, const std::vector<torch::Tensor>& gradients) const;
  // TRUNCATE, in reduced precision only: truncates all weights.
  void SpoilWeights(int64_t step, const std::vector<torch::Tensor>& weights) const;
  // SLOW: returns the additional duration of the step in seconds.
  double Delay(int64_t step) const;

  bool empty() const { return list_.empty(); }

 private:
  // Returns the amount of a fault of `kind` that applies in this step, or 0 if none does.
  double Amount(training::v1::RehearsalKind kind, int64_t step, int64_t micro_batch) const;

  const std::vector<training::v1::RehearsalSpec> list_;
};

}  // namespace genesis
