#include "trainer/guard/paired_loss.h"

#include <ATen/CPUGeneratorImpl.h>

#include <memory>
#include <string>

#include "c10/core/impl/VirtualGuardImpl.h"
#include "genesis/training/v1/precision.pb.h"
#include "trainer/models/base/kept_state.h"

namespace genesis {

PairedLossReading::PairedLossReading(const torch::Tensor& losses, double rounding_error,
                                     RankGroup& ranks)
    : rounding_error_(rounding_error), ranks_(ranks) {
  if (!losses.defined()) return;
  const bool cuda = losses.is_cuda();
  losses_ = torch::empty({2}, torch::TensorOptions(torch::kDouble).pinned_memory(cuda));
  losses_.copy_(losses, /*non_blocking=*/true);
  if (!cuda) return;
  const c10::impl::VirtualGuardImpl device(at::kCUDA);
  copied_.emplace(at::kCUDA);
  copied_->record(device.getStream(losses.device()));
}

PairedLoss PairedLossReading::Read() const {
  training::v1::LossCurve told;
  if (losses_.defined()) {
    // Sync: on CUDA waits until the losses have arrived.
    if (copied_) copied_->synchronize();
    const double* const host = losses_.const_data_ptr<double>();
    told.mutable_losses()->Add(host, host + 2);
  }
  ranks_.CopyFromFirst(told);
  return {.reduced = told.losses(0), .fp32 = told.losses(1), .rounding_error = rounding_error_};
}

namespace {

// Returns float64 [2] on the device: the format's loss and FP32's.
torch::Tensor BothLosses(const StepParts& parts, const StepFormat& format,
                         const StepEvidence& evidence, int64_t step) {
  const torch::NoGradGuard no_grad;
  const std::shared_ptr<const void> state = parts.model.KeepState();
  const at::Device device = parts.model.parameters().front().second.device();
  const KeptGenerators now(device);
  at::Generator drawing = at::detail::getDefaultCPUGenerator();
  drawing.set_state(evidence.generator);
  torch::Tensor sum = torch::zeros({2}, torch::TensorOptions(torch::kDouble).device(device));
  for (size_t i = 0; i < evidence.examples.size(); ++i) {
    const auto micro_batch = static_cast<int64_t>(i);
    Batch batch = parts.source.Fetch(evidence.examples[i]);
    parts.model.Draw(batch);
    torch::Tensor fp32;
    {
      const KeptGenerators drawn(device);
      if (format.weights != at::kFloat) parts.weights.SetFormat(at::kFloat);
      fp32 = parts.model.Loss(batch, std::nullopt);
      if (format.weights != at::kFloat) parts.weights.SetFormat(format.weights);
    }
    parts.faults.SpoilBatch(step, micro_batch, format.reduced(), batch);
    const torch::Tensor reduced = parts.model.Loss(batch, format.autocast).to(at::kDouble) *
                                  parts.faults.LossFactor(step, micro_batch);
    sum += torch::stack({reduced, fp32.to(at::kDouble)});
  }
  return sum / static_cast<double>(evidence.examples.size());
}

}  // namespace

PairedLossReading ComparePrecision(TrainingSession& session, int64_t step) {
  const StepFormat format = FormatOf(session.mode());
  // BothLosses() may reallocate weights, whose addresses a captured step holds.
  if (format.weights != at::kFloat) session.step().ForgetCapture();
  const StepParts parts = session.Parts();
  torch::Tensor losses;
  if (parts.ranks.first()) losses = BothLosses(parts, format, session.step().evidence(), step);
  return {losses, format.rounding_error(), parts.ranks};
}

}  // namespace genesis
