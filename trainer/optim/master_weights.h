#pragma once

#include <ATen/ATen.h>

#include <vector>

namespace genesis {

// The FP32 weights that an optimizer updates, beside the parameters that a model computes with. In
// FP32 and the mixed modes the two are the same memory. In pure FP16 and BF16 the parameters are
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

  // Before the first micro-batch of a step: forgets its gradients.
  void BeginStep();
  // After each backward pass.
  void Accumulate();
  // Instead of Accumulate for the last one, for each parameter once its gradient is complete: gives
  // away the sum over the micro-batches, in any format; undefined where none arrived.
  at::Tensor Release(size_t parameter);
  // Once all were released: what became of them, float32.
  void TakeGradients(const std::vector<at::Tensor>& gradients) { gradients_ = gradients; }
  // float32, one per parameter, summed over the micro-batches; zeros where none arrived.
  const std::vector<at::Tensor>& gradients() const { return gradients_; }
  // The same, undefined where none arrived in any micro-batch: what the optimizer takes.
  std::vector<at::Tensor> ArrivedGradients() const;
  // float32 [parameters] on the CPU: above 0 where a gradient arrived, here or, once it was added
  // up, in any rank.
  const at::Tensor& arrived() const { return arrived_; }
  // After the masters changed: rounds them into the parameters.
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
