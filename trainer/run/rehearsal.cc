#include "trainer/run/rehearsal.h"

#include <limits>

namespace genesis {
namespace {

constexpr int64_t kAnyMicroBatch = -1;

}  // namespace

double Rehearsals::Amount(training::v1::RehearsalKind kind, int64_t step,
                          int64_t micro_batch) const {
  for (const training::v1::RehearsalSpec& rehearsal : list_) {
    const int64_t first = rehearsal.at_step();
    const bool acts = rehearsal.kind() == kind && step >= first &&
                      step < first + rehearsal.steps() &&
                      (micro_batch == kAnyMicroBatch || micro_batch == rehearsal.micro_batch());
    if (acts) return rehearsal.amount();
  }
  return 0;
}

bool Rehearsals::SpoilBatch(int64_t step, int64_t micro_batch, Batch& batch) const {
  if (Amount(training::v1::REHEARSAL_KIND_NAN, step, micro_batch) == 0) return false;
  for (auto& [name, tensor] : batch.fields) {
    if (!tensor.is_floating_point()) continue;
    tensor.view(-1)[0].fill_(std::numeric_limits<double>::quiet_NaN());
    return true;
  }
  return false;
}

double Rehearsals::LossFactor(int64_t step, int64_t micro_batch) const {
  const double factor = Amount(training::v1::REHEARSAL_KIND_SPIKE, step, micro_batch);
  return factor == 0 ? 1 : factor;
}

void Rehearsals::SpoilGradients(int64_t step, const std::vector<torch::Tensor>& gradients) const {
  if (Amount(training::v1::REHEARSAL_KIND_INF, step, kAnyMicroBatch) == 0) return;
  const torch::NoGradGuard no_grad;
  gradients.front().view(-1)[0].fill_(std::numeric_limits<double>::infinity());
}

double Rehearsals::Delay(int64_t step) const {
  return Amount(training::v1::REHEARSAL_KIND_SLOW, step, kAnyMicroBatch);
}

}  // namespace genesis
