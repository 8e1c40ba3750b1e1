#include "trainer/optim/fused_adamw.h"

#include <utility>

namespace genesis {

FusedAdamW::FusedAdamW(std::vector<at::Tensor> parameters, const AdamWOptions& options)
    : options_(options), parameters_(std::move(parameters)) {
  for (const at::Tensor& parameter : parameters_) {
    steps_.push_back(at::zeros({}, parameter.options().dtype(at::kFloat).requires_grad(false)));
    exp_avgs_.push_back(at::zeros_like(parameter, at::MemoryFormat::Preserve));
    exp_avg_sqs_.push_back(at::zeros_like(parameter, at::MemoryFormat::Preserve));
  }
}

void FusedAdamW::Step(const at::Tensor& grad_scale, const at::Tensor& found_inf) {
  const at::NoGradGuard no_grad;
  std::vector<at::Tensor> gradients;
  gradients.reserve(parameters_.size());
  for (const at::Tensor& parameter : parameters_) gradients.push_back(parameter.grad());
  at::_foreach_add_(steps_, 1);
  at::_fused_adamw_(parameters_, gradients, exp_avgs_, exp_avg_sqs_, /*max_exp_avg_sqs=*/{}, steps_,
                    options_.learning_rate, options_.beta1, options_.beta2, options_.weight_decay,
                    options_.epsilon, /*amsgrad=*/false, /*maximize=*/false, grad_scale, found_inf);
  // A skipped update counts as no step.
  at::_foreach_sub_(steps_, std::vector<at::Tensor>(steps_.size(), found_inf));
}

std::vector<AdamWParameterState> FusedAdamW::state() const {
  std::vector<AdamWParameterState> state;
  for (size_t i = 0; i < parameters_.size(); ++i) {
    state.push_back({.step = steps_[i], .exp_avg = exp_avgs_[i], .exp_avg_sq = exp_avg_sqs_[i]});
  }
  return state;
}

void FusedAdamW::LoadState(const std::vector<AdamWParameterState>& state) {
  const at::NoGradGuard no_grad;
  for (size_t i = 0; i < parameters_.size(); ++i) {
    steps_[i].copy_(state[i].step);
    exp_avgs_[i].copy_(state[i].exp_avg);
    exp_avg_sqs_[i].copy_(state[i].exp_avg_sq);
  }
}

}  // namespace genesis
