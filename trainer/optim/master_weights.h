#pragma once

#include <ATen/ATen.h>

#include <vector>

namespace genesis {

// The FP32 weights that an optimizer updates, separate from the parameters that a model computes
// with. In FP32 and the mixed modes both share memory. In pure FP16 and BF16 the parameters are
// rounded copies, and gradients are summed over micro-batches in FP32 (Micikevicius et al., 2018).
//
// Owner: the run. Threads: one. Failure: exceptions of LibTorch.
class MasterWeights {
 public:
  // The parameters are float32 and shared with the model.
  explicit MasterWeights(std::vector<at::Tensor> parameters);

  // Converts the parameters in place: kFloat, kHalf or kBFloat16. The masters keep their values.
  void SetFormat(at::ScalarType format);
  at::ScalarType format() const { return parameters_.front().scalar_type(); }

  // Call before the first micro-batch of a step: resets the gradients.
  void BeginStep();
  // Adds the gradients of a backward pass. Call after each pass.
  void Accumulate();
  // Replaces Accumulate for the last micro-batch: call for each parameter once its gradient is
  // complete. Moves out the sum over the micro-batches; zeros or undefined if none arrived.
  at::Tensor Release(size_t parameter);
  // Sets the reduced gradients, float32. Call after all parameters were released.
  void TakeGradients(const std::vector<at::Tensor>& gradients) { gradients_ = gradients; }
  // Gradients: float32, one per parameter, summed over the micro-batches; zeros if none arrived.
  const std::vector<at::Tensor>& gradients() const { return gradients_; }
  // The gradients for the optimizer: undefined if none arrived in any micro-batch.
  std::vector<at::Tensor> ArrivedGradients() const;
  // Arrivals, float32 [parameters] on the CPU: above 0 if a gradient arrived in this rank or, after
  // the reduction, in any rank.
  const at::Tensor& arrived() const { return arrived_; }
  // Rounds the masters into the parameters. Call after changing the masters.
  void Publish();

  const std::vector<at::Tensor>& masters() const { return masters_; }

 private:
  bool shared() const { return format() == at::kFloat; }

  std::vector<at::Tensor> parameters_;
  std::vector<at::Tensor> masters_;
  std::vector<at::Tensor> gradients_;
  at::Tensor arrived_;
};

}  // namespace genesis
