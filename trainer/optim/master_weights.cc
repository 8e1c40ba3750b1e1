#include "trainer/optim/master_weights.h"

#include <utility>

namespace genesis {

MasterWeights::MasterWeights(std::vector<at::Tensor> parameters)
    : parameters_(std::move(parameters)) {
  for (const at::Tensor& parameter : parameters_) masters_.push_back(parameter.detach());
  arrived_ = at::zeros({static_cast<int64_t>(parameters_.size())}, at::kFloat);
}

void MasterWeights::SetFormat(at::ScalarType format) {
  const at::NoGradGuard no_grad;
  for (size_t i = 0; i < parameters_.size(); ++i) {
    parameters_[i].mutable_grad().reset();
    parameters_[i].set_data(masters_[i].to(format));
  }
  gradients_.clear();
}

void MasterWeights::BeginStep() {
  for (const at::Tensor& parameter : parameters_) parameter.mutable_grad().reset();
  gradients_.clear();
  arrived_.zero_();
}

void MasterWeights::Accumulate() {
  const at::NoGradGuard no_grad;
  const bool first = gradients_.empty();
  float* const arrived = arrived_.mutable_data_ptr<float>();
  for (size_t i = 0; i < parameters_.size(); ++i) {
    if (parameters_[i].grad().defined()) arrived[i] = 1;
  }
  if (shared()) {
    // Autograd accumulates in place. The list of handles is rebuilt each time because this class
    // does not know which micro-batch is the last.
    gradients_.clear();
    for (const at::Tensor& parameter : parameters_) {
      gradients_.push_back(parameter.grad().defined() ? parameter.grad()
                                                      : at::zeros_like(parameter));
    }
    return;
  }
  for (size_t i = 0; i < parameters_.size(); ++i) {
    at::Tensor& gradient = parameters_[i].mutable_grad();
    if (first) {
      gradients_.push_back(gradient.defined() ? gradient.to(at::kFloat)
                                              : at::zeros_like(masters_[i]));
    } else if (gradient.defined()) {
      gradients_[i].add_(gradient);
    }
    gradient.reset();
  }
}

at::Tensor MasterWeights::Release(size_t parameter) {
  const at::NoGradGuard no_grad;
  at::Tensor gradient = std::exchange(parameters_[parameter].mutable_grad(), {});
  if (gradient.defined()) arrived_.mutable_data_ptr<float>()[parameter] = 1;
  // The sum over the micro-batches is either autograd's gradient or in gradients_.
  if (shared() || gradients_.empty()) return gradient;
  at::Tensor sum = std::exchange(gradients_[parameter], {});
  return gradient.defined() ? sum.add_(gradient) : sum;
}

std::vector<at::Tensor> MasterWeights::ArrivedGradients() const {
  std::vector<at::Tensor> gradients = gradients_;
  const float* const arrived = arrived_.const_data_ptr<float>();
  for (size_t i = 0; i < gradients.size(); ++i) {
    if (arrived[i] == 0) gradients[i].reset();
  }
  return gradients;
}

void MasterWeights::Publish() {
  if (shared()) return;
  const at::NoGradGuard no_grad;
  at::_foreach_copy_(parameters_, masters_);
}

}  // namespace genesis
