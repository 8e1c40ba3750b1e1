#include "trainer/step/gradient_hooks.h"

#include <torch/csrc/autograd/function_hook.h>
#include <torch/csrc/autograd/variable.h>

#include <utility>

namespace genesis {

class GradientHooks::Hook : public torch::autograd::PostAccumulateGradHook {
 public:
  Hook(size_t parameter, std::shared_ptr<Callback> callback)
      : parameter_(parameter), callback_(std::move(callback)) {}

  void operator()(const torch::autograd::Variable& /*parameter*/) override {
    if (*callback_) (*callback_)(parameter_);
  }

 private:
  const size_t parameter_;
  const std::shared_ptr<Callback> callback_;
};

GradientHooks::GradientHooks(std::vector<torch::Tensor> parameters)
    : parameters_(std::move(parameters)), callback_(std::make_shared<Callback>()) {
  for (size_t i = 0; i < parameters_.size(); ++i) {
    torch::autograd::impl::set_post_acc_grad_hooks(parameters_[i],
                                                   std::make_unique<Hook>(i, callback_));
  }
}

GradientHooks::~GradientHooks() {
  for (const torch::Tensor& parameter : parameters_) {
    torch::autograd::impl::set_post_acc_grad_hooks(parameter, nullptr);
  }
}

}  // namespace genesis
