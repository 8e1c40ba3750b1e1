#include "trainer/run/train_step.h"

#include <utility>

#include "c10/core/impl/VirtualGuardImpl.h"

namespace genesis {
namespace {

constexpr int64_t kFigures = 5;
// torch.nn.utils.clip_grad_norm_ adds it to the norm before it divides.
constexpr double kClipEpsilon = 1e-6;

}  // namespace

TrainStep::TrainStep(const StepParts& parts, const TrainStepOptions& options)
    : parts_(parts),
      options_(options),
      loss_and_gradients_(parts.model),
      one_(torch::ones({}, parts.optimizer.masters().front().options())) {
  const bool cuda = one_.is_cuda();
  for (Slot& slot : slots_) {
    slot.host = torch::empty({kFigures}, torch::TensorOptions(torch::kFloat).pinned_memory(cuda));
    if (cuda) slot.copied.emplace(at::kCUDA);
  }
}

void TrainStep::SetFormat(const StepFormat& format, GradScaler* scaler, CompiledStep* compiled) {
  format_ = format;
  scaler_ = scaler;
  loss_and_gradients_.Use(format.autocast, compiled);
}

void TrainStep::Run(int64_t step) {
  Slot& slot = slots_[static_cast<size_t>(next_slot_)];
  const torch::Tensor scale = scaler_ != nullptr ? scaler_->scale().clone() : one_;

  const torch::Tensor loss = AccumulateGradients(step, slot.evidence);

  const torch::NoGradGuard no_grad;
  const std::vector<torch::Tensor>& gradients = parts_.weights.gradients();
  // One pass over the gradients serves three ends: the figure, the finite test and the clipping.
  slot.evidence.gradient_norms = at::_foreach_norm(gradients, 2, torch::kFloat);
  const torch::Tensor norm = at::linalg_vector_norm(at::stack(slot.evidence.gradient_norms));
  const torch::Tensor found_inf = torch::isfinite(norm).logical_not().to(torch::kFloat);
  const torch::Tensor unscaled_norm = scaler_ != nullptr ? norm / scale : norm;
  torch::Tensor divisor = scale;
  if (options_.max_grad_norm) {
    // Unscaling and clipping are one division in the optimizer.
    divisor = scale / (*options_.max_grad_norm / (unscaled_norm + kClipEpsilon)).clamp_max(1.0);
  }

  AwaitCopy();
  parts_.optimizer.Step(gradients, LearningRate(), divisor, found_inf);
  parts_.weights.Publish();
  if (parts_.average != nullptr) parts_.average->Update(found_inf);
  if (scaler_ != nullptr) scaler_->Update(found_inf);

  last_found_inf_ = found_inf;
  SendFigures(
      slot, {loss, unscaled_norm, scale, scaler_ != nullptr ? scaler_->scale() : one_, found_inf});
}

torch::Tensor TrainStep::AccumulateGradients(int64_t step, StepEvidence& evidence) {
  evidence.examples.clear();
  evidence.generator = at::detail::getDefaultCPUGenerator().get_state();
  parts_.weights.BeginStep();
  const int64_t micro_batches = options_.gradient_accumulation_steps;
  LossAndGradients::Share share{.micro_batches = micro_batches,
                                .scale = scaler_ != nullptr ? scaler_->scale() : torch::Tensor()};
  torch::Tensor total;
  for (int64_t i = 0; i < micro_batches; ++i) {
    Batch batch = parts_.source.Next();
    const bool spoiled = parts_.rehearsals.SpoilBatch(step, i, batch);
    share.factor = format_.reduced() ? parts_.rehearsals.LossFactor(step, i) : 1;
    const torch::Tensor loss = loss_and_gradients_.Add(batch, share, /*unusual=*/spoiled);
    parts_.weights.Accumulate();
    if (parts_.source.prioritized()) {
      parts_.source.Reprioritize(batch.examples, parts_.model.ExampleLosses());
    }
    total = total.defined() ? total + loss : loss;
    evidence.examples.push_back(std::move(batch.examples));
  }
  if (scaler_ != nullptr) parts_.rehearsals.SpoilGradients(step, parts_.weights.gradients());
  return total;
}

Optimizer::LearningRate TrainStep::LearningRate() {
  const Schedule& schedule = parts_.schedule;
  if (schedule.constant()) return schedule.LearningRate(0);
  if (unread_ == 0) return schedule.LearningRate(applied_);
  const double if_skipped = schedule.LearningRate(applied_);
  const double if_applied = schedule.LearningRate(applied_ + 1);
  if (one_.is_cuda()) {
    // Whether the step before was applied is known to the device only.
    return (last_found_inf_ * (if_skipped - if_applied)).add(if_applied);
  }
  return last_found_inf_.const_data_ptr<float>()[0] != 0 ? if_skipped : if_applied;
}

void TrainStep::SendFigures(Slot& slot, const std::vector<torch::Tensor>& figures) {
  next_slot_ = 1 - next_slot_;
  ++unread_;
  slot.host.copy_(at::stack(figures), /*non_blocking=*/true);
  if (slot.copied) {
    const c10::impl::VirtualGuardImpl device(at::kCUDA);
    slot.copied->record(device.getStream(one_.device()));
  }
}

TrainStep::Slot& TrainStep::OldestUnread() {
  return slots_[static_cast<size_t>(unread_ == 2 ? next_slot_ : 1 - next_slot_)];
}

StepFigures TrainStep::Read() {
  Slot& slot = OldestUnread();
  --unread_;
  // Sync: on CUDA waits until the step's figures have arrived.
  if (slot.copied) slot.copied->synchronize();
  const float* const host = slot.host.const_data_ptr<float>();
  evidence_ = std::move(slot.evidence);
  StepFigures figures{.loss = host[0],
                      .grad_norm = host[1],
                      .loss_scale = host[2],
                      .next_loss_scale = host[3],
                      .learning_rate = parts_.schedule.LearningRate(applied_),
                      .skipped = host[4] != 0};
  if (!figures.skipped) ++applied_;
  return figures;
}

}  // namespace genesis
