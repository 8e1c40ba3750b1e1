#include "trainer/step/gradient_exchange.h"

#include <ATen/record_function.h>

#include <utility>

namespace genesis {

GradientExchange::GradientExchange(const Model& model, MasterWeights& weights,
                                   GradientReducer& reducer, bool overlaps)
    : weights_(weights), reducer_(reducer), moved_(reducer.memory().size()) {
  if (!overlaps) return;
  std::vector<torch::Tensor> parameters;
  for (const auto& [name, parameter] : model.parameters()) parameters.push_back(parameter);
  hooks_.emplace(std::move(parameters));
}

void GradientExchange::NoteScale(const torch::Tensor& scale) {
  if (!reducer_.has_residuals()) return;
  const float value = reducer_.Fetch(scale).item<float>();
  if (std::exchange(scale_, value) != value) reducer_.DropResiduals();
}

torch::Tensor GradientExchange::RunLast(const std::function<torch::Tensor()>& pass) {
  moved_.assign(moved_.size(), false);
  if (hooks_) {
    const GradientHooks::Scope scope(*hooks_, [this](size_t parameter) { Move(parameter); });
    return pass();
  }
  const torch::Tensor loss = pass();
  weights_.Accumulate();
  return loss;
}

torch::Tensor GradientExchange::Finish(const torch::Tensor& loss, bool captured) {
  RECORD_USER_SCOPE("average");
  // In bucket order, so that the first bucket is in flight while the next is filled.
  for (size_t i = moved_.size(); i-- > 0;) {
    if (!moved_[i]) Move(i);
  }
  weights_.TakeGradients(reducer_.memory());
  return captured ? reducer_.Reduce(loss, weights_.arrived())
                  : reducer_.Finish(loss, weights_.arrived());
}

void GradientExchange::Move(size_t parameter) {
  reducer_.Put(parameter, weights_.Release(parameter));
  moved_[parameter] = true;
}

}  // namespace genesis
