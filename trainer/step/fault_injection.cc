#include "trainer/step/fault_injection.h"

#include <ATen/CPUGeneratorImpl.h>

#include <algorithm>
#include <limits>

namespace genesis {
namespace {

constexpr int64_t kAnyMicroBatch = -1;
constexpr uint64_t kPoisonSeed = 0x706f69736f6e;
constexpr double kMantissaBits = 23;  // Mantissa bits of float32.

}  // namespace

double FaultInjection::Amount(training::v1::RehearsalKind kind, int64_t step,
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

bool FaultInjection::SpoilBatch(int64_t step, int64_t micro_batch, bool reduced,
                                Batch& batch) const {
  const bool nan = Amount(training::v1::REHEARSAL_KIND_NAN, step, micro_batch) != 0;
  const double noise = reduced ? Amount(training::v1::REHEARSAL_KIND_POISON, step, micro_batch) : 0;
  if (!nan && noise == 0) return false;
  // Use a separate generator, so that the run draws the same numbers as without a fault.
  const at::Generator generator =
      at::detail::createCPUGenerator(static_cast<uint64_t>(step) + kPoisonSeed);
  bool acted = false;
  for (auto& [name, tensor] : batch.fields) {
    if (!tensor.is_floating_point()) continue;
    if (nan && !acted) tensor.view(-1)[0].fill_(std::numeric_limits<double>::quiet_NaN());
    if (noise != 0) {
      torch::Tensor spoilt = tensor.narrow(0, 0, (tensor.size(0) + 3) / 4);
      spoilt.add_(torch::randn(spoilt.sizes(), generator).to(spoilt.options()), noise);
    }
    acted = true;
  }
  return acted;
}

double FaultInjection::LossFactor(int64_t step, int64_t micro_batch) const {
  const double factor = Amount(training::v1::REHEARSAL_KIND_SPIKE, step, micro_batch);
  return factor == 0 ? 1 : factor;
}

void FaultInjection::SpoilGradients(int64_t step, bool scaled,
                                    const std::vector<torch::Tensor>& gradients) const {
  if (list_.empty()) return;
  const torch::NoGradGuard no_grad;
  const auto amount = [&](training::v1::RehearsalKind kind) {
    return Amount(kind, step, kAnyMicroBatch);
  };
  if (scaled && amount(training::v1::REHEARSAL_KIND_INF) != 0) {
    gradients.front().view(-1)[0].fill_(std::numeric_limits<double>::infinity());
  }
  const bool stale = amount(training::v1::REHEARSAL_KIND_STALE) != 0;
  const double most = amount(training::v1::REHEARSAL_KIND_SATURATE);
  const double least = amount(training::v1::REHEARSAL_KIND_UNDERFLOW);
  for (const torch::Tensor& gradient : gradients) {
    if (stale) gradient.zero_();
    if (most != 0) gradient.clamp_(-most, most);
    if (least != 0) gradient.masked_fill_(gradient.abs() < least, 0);
  }
}

void FaultInjection::SpoilWeights(int64_t step, const std::vector<torch::Tensor>& weights) const {
  const double bits = Amount(training::v1::REHEARSAL_KIND_TRUNCATE, step, kAnyMicroBatch);
  if (bits == 0) return;
  const torch::NoGradGuard no_grad;
  const auto cut = static_cast<int>(std::clamp(kMantissaBits - bits, 0.0, kMantissaBits));
  for (const torch::Tensor& weight : weights) {
    weight.view(torch::kInt).bitwise_and_(static_cast<int>(~0U << static_cast<unsigned>(cut)));
  }
}

double FaultInjection::Delay(int64_t step) const {
  return Amount(training::v1::REHEARSAL_KIND_SLOW, step, kAnyMicroBatch);
}

}  // namespace genesis
