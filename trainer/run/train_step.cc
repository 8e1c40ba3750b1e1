#include "trainer/run/train_step.h"

#include <utility>

#include "c10/core/impl/VirtualGuardImpl.h"

namespace genesis {
namespace {

constexpr int64_t kFigures = 5;
// torch.nn.utils.clip_grad_norm_ adds it to the norm before it divides.
constexpr double kClipEpsilon = 1e-6;

}  // namespace

TrainStep::TrainStep(WorldModel model, TransitionSource& source, FusedAdamW& optimizer,
                     GradScaler* scaler, const TrainStepOptions& options)
    : model_(std::move(model)),
      source_(source),
      optimizer_(optimizer),
      scaler_(scaler),
      options_(options),
      one_(torch::ones({}, optimizer.parameters().front().options().requires_grad(false))) {
  const bool cuda = one_.is_cuda();
  for (Slot& slot : slots_) {
    slot.host = torch::empty({kFigures}, torch::TensorOptions(torch::kFloat).pinned_memory(cuda));
    if (cuda) slot.copied.emplace(at::kCUDA);
  }
}

void TrainStep::Run() {
  const torch::Tensor scale = scaler_ != nullptr ? scaler_->scale().clone() : one_;

  const torch::Tensor loss = AccumulateGradients();

  const torch::NoGradGuard no_grad;
  // One pass over the gradients serves three ends: the figure, the finite test and the clipping.
  const torch::Tensor norm = ScaledGradientNorm();
  const torch::Tensor found_inf = torch::isfinite(norm).logical_not().to(torch::kFloat);
  const torch::Tensor unscaled_norm = scaler_ != nullptr ? norm / scale : norm;
  torch::Tensor divisor = scale;
  if (options_.max_grad_norm) {
    // Unscaling and clipping are one division in the optimizer.
    divisor = scale / (*options_.max_grad_norm / (unscaled_norm + kClipEpsilon)).clamp_max(1.0);
  }

  optimizer_.Step(divisor, found_inf);
  if (scaler_ != nullptr) scaler_->Update(found_inf);

  SendFigures(
      {loss, unscaled_norm, scale, scaler_ != nullptr ? scaler_->scale() : one_, found_inf});
}

torch::Tensor TrainStep::AccumulateGradients() {
  for (const torch::Tensor& parameter : optimizer_.parameters()) parameter.mutable_grad().reset();
  const int64_t micro_batches = options_.gradient_accumulation_steps;
  torch::Tensor total;
  for (int64_t i = 0; i < micro_batches; ++i) {
    torch::Tensor loss = model_->Loss(source_.Next(), options_.autocast);
    if (micro_batches > 1) loss = loss / static_cast<double>(micro_batches);
    (scaler_ != nullptr ? scaler_->Scale(loss) : loss).backward();
    total = total.defined() ? total + loss.detach() : loss.detach();
  }
  return total;
}

torch::Tensor TrainStep::ScaledGradientNorm() const {
  std::vector<torch::Tensor> gradients;
  gradients.reserve(optimizer_.parameters().size());
  for (const torch::Tensor& parameter : optimizer_.parameters()) {
    gradients.push_back(parameter.grad());
  }
  const std::vector<torch::Tensor> norms = at::_foreach_norm(gradients, 2, torch::kFloat);
  return at::linalg_vector_norm(at::stack(norms));
}

void TrainStep::SendFigures(const std::vector<torch::Tensor>& figures) {
  Slot& slot = slots_[static_cast<size_t>(next_slot_)];
  next_slot_ = 1 - next_slot_;
  ++unread_;
  slot.host.copy_(at::stack(figures), /*non_blocking=*/true);
  if (slot.copied) {
    const c10::impl::VirtualGuardImpl device(at::kCUDA);
    slot.copied->record(device.getStream(one_.device()));
  }
}

StepFigures TrainStep::Read() {
  const Slot& slot = slots_[static_cast<size_t>(unread_ == 2 ? next_slot_ : 1 - next_slot_)];
  --unread_;
  // Sync: on CUDA waits until the step's figures have arrived.
  if (slot.copied) slot.copied->synchronize();
  const float* const figures = slot.host.const_data_ptr<float>();
  return {.loss = figures[0],
          .grad_norm = figures[1],
          .loss_scale = figures[2],
          .next_loss_scale = figures[3],
          .skipped = figures[4] != 0};
}

}  // namespace genesis
