#include "trainer/step/loss_and_gradients.h"

#include <ATen/record_function.h>

namespace genesis {

LossAndGradients::LossAndGradients(Model& model)
    : model_(model),
      one_(torch::ones(
          {},
          torch::TensorOptions(torch::kFloat).device(model.parameters().front().second.device()))) {
}

void LossAndGradients::Use(std::optional<torch::ScalarType> autocast, CompiledStep* compiled) {
  autocast_ = autocast;
  compiled_ = compiled;
}

torch::Tensor LossAndGradients::Add(const Batch& batch, const Share& share, bool unusual) {
  if (unusual) return AddEager(batch, share);
  if (compiled_ != nullptr && compiled_->Fits(batch)) return AddJoint(batch, share, compiled_);
  return model_.has_joint_graph() ? AddJoint(batch, share, nullptr) : AddEager(batch, share);
}

torch::Tensor LossAndGradients::AddEager(const Batch& batch, const Share& share) {
  torch::Tensor loss;
  {
    RECORD_USER_SCOPE("forward");
    loss = model_.Loss(batch, autocast_);
  }
  RECORD_USER_SCOPE("backward");
  if (share.factor != 1) loss = loss * share.factor;
  if (share.micro_batches > 1) loss = loss / static_cast<double>(share.micro_batches);
  (share.scale.defined() ? loss * share.scale : loss).backward();
  return loss.detach();
}

torch::Tensor LossAndGradients::AddJoint(const Batch& batch, const Share& share,
                                         CompiledStep* compiled) {
  RECORD_USER_SCOPE("forward and backward");
  const double factor = share.factor / static_cast<double>(share.micro_batches);
  const torch::Tensor& scale = share.scale.defined() ? share.scale : one_;
  const torch::Tensor scaled = factor == 1 ? scale : scale * factor;
  const torch::Tensor loss = compiled != nullptr
                                 ? compiled->Run(batch, scaled)
                                 : model_.AddLossAndGradients(batch, autocast_, scaled);
  return factor == 1 ? loss : loss * factor;
}

}  // namespace genesis
