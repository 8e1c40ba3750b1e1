#pragma once

#include <ATen/ATen.h>

#include <cstdint>
#include <optional>
#include <vector>

namespace genesis {

struct AdamWOptions {
  double learning_rate = 1e-3;
  double beta1 = 0.9;
  double beta2 = 0.999;
  double epsilon = 1e-8;
  double weight_decay = 0.01;
};

// One parameter's entry under `state` in torch.optim.AdamW's state dict.
struct AdamWParameterState {
  at::Tensor step;  // float32, no dimensions
  at::Tensor exp_avg;
  at::Tensor exp_avg_sq;
};

// torch.optim.AdamW(fused=True): one kernel updates all parameters, divides the gradients by a
// scale, and does nothing at all when an overflow was found; neither needs the host.
//
// Owner: the run. Threads: one. Failure: exceptions of LibTorch.
class FusedAdamW {
 public:
  // The parameters are shared with the model and updated in place.
  FusedAdamW(std::vector<at::Tensor> parameters, const AdamWOptions& options);

  // One update from the parameters' gradients, which are divided by `grad_scale` in place first.
  // `found_inf` is exactly 1 to skip the update, else 0. Both are float32, without dimensions.
  void Step(const at::Tensor& grad_scale, const at::Tensor& found_inf);

  const std::vector<at::Tensor>& parameters() const { return parameters_; }
  const AdamWOptions& options() const { return options_; }
  // In the order of the parameters; shares memory with the optimizer.
  std::vector<AdamWParameterState> state() const;
  // Copies the values in. Requires one entry per parameter, of its shape.
  void LoadState(const std::vector<AdamWParameterState>& state);

 private:
  const AdamWOptions options_;
  std::vector<at::Tensor> parameters_;
  std::vector<at::Tensor> steps_;
  std::vector<at::Tensor> exp_avgs_;
  std::vector<at::Tensor> exp_avg_sqs_;
};

}  // namespace genesis
