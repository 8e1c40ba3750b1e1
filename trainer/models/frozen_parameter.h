#pragma once

#include <torch/types.h>

#include <cstdint>

namespace genesis {

// A parameter of a scripted module that is not trained. In pure FP16 and BF16 the module computes
// with a copy in the format of the weights, as after module.to(dtype) in Python; checkpoints and
// other formats have the one in float32. A change by forward, as in a target network that follows,
// comes to both.
//
// Owner: the model. Threads: one. Failure: none.
class FrozenParameter {
 public:
  explicit FrozenParameter(const torch::Tensor& used);

  // In float32, or as the file has it where it holds no floating-point numbers; the same tensor for
  // as long as the module stays on its device.
  const torch::Tensor& exact() const { return exact_; }

  // Before forward, for weights in `format`: takes over what was written to exact(). After it: what
  // forward changed.
  void Follow(torch::ScalarType format);
  // The module has been moved to another device, in float32.
  void Moved() { exact_ = used_.variable_data(); }

  // Whether forward has changed it.
  bool moves() const { return moves_; }

 private:
  torch::Tensor used_;   // The module's own.
  torch::Tensor exact_;  // The same memory in float32.
  // At the last Follow.
  uint32_t used_version_;
  uint32_t exact_version_;
  bool moves_ = false;
};

}  // namespace genesis
