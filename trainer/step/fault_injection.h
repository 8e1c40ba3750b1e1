#pragma once

#include <torch/torch.h>

#include <cstdint>
#include <vector>

#include "genesis/training/v1/job.pb.h"
#include "trainer/models/model.h"

namespace genesis {

// Faults made on purpose (JobSpec.rehearsals), so that operators see the policy act before they
// need it. All but NAN stand for what reduced precision does wrong, and so act in it alone. Without
// any, each call returns at once.
//
// Threads: immutable.
class FaultInjection {
 public:
  explicit FaultInjection(const training::v1::JobSpec& spec)
      : list_(spec.rehearsals().begin(), spec.rehearsals().end()) {}

  // NAN: into the first floating-point field. POISON: noise in all of them, where the step is in
  // `reduced` precision. True where one acted.
  bool SpoilBatch(int64_t step, int64_t micro_batch, bool reduced, Batch& batch) const;
  // SPIKE: what the loss, and with it every gradient, is multiplied by; 1 where none acts.
  double LossFactor(int64_t step, int64_t micro_batch) const;
  // In reduced precision. INF: into the first parameter's gradient, in modes with a loss scale.
  // STALE, SATURATE and UNDERFLOW: in all gradients, which hold the loss scale where there is one.
  void SpoilGradients(int64_t step, bool scaled, const std::vector<torch::Tensor>& gradients) const;
  // In reduced precision. TRUNCATE: in all weights.
  void SpoilWeights(int64_t step, const std::vector<torch::Tensor>& weights) const;
  // SLOW: how much longer the step takes. Seconds.
  double Delay(int64_t step) const;

  bool empty() const { return list_.empty(); }

 private:
  // The amount of a rehearsal of `kind` that acts in this step, or 0 where none does.
  double Amount(training::v1::RehearsalKind kind, int64_t step, int64_t micro_batch) const;

  const std::vector<training::v1::RehearsalSpec> list_;
};

}  // namespace genesis
