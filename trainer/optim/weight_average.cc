#include "trainer/optim/weight_average.h"

#include <utility>

namespace genesis {

WeightAverage::WeightAverage(std::vector<at::Tensor> weights, double decay)
    : decay_(decay), weights_(std::move(weights)) {
  for (const at::Tensor& weight : weights_) average_.push_back(weight.clone());
}

void WeightAverage::Update(const at::Tensor& found_inf) {
  const at::NoGradGuard no_grad;
  std::vector<at::Tensor> change = at::_foreach_sub(weights_, average_);
  at::_foreach_mul_(change, (1 - found_inf) * (1 - decay_));
  at::_foreach_add_(average_, change);
}

void WeightAverage::LoadState(const std::vector<at::Tensor>& average) {
  const at::NoGradGuard no_grad;
  for (size_t i = 0; i < average_.size(); ++i) average_[i].copy_(average[i]);
}

}  // namespace genesis
