#pragma once

#include <ATen/ATen.h>

#include <cstdint>
#include <vector>

#include "trainer/optim/parameter_groups.h"

namespace genesis {

// torch.nn.utils.clip_grad_norm_ for each of ParameterGroups.clipped, folded with the division by
// the loss scale into one divisor for the optimizer. Never waits for the device.
//
// Owner: the run. Threads: immutable.
class GradientClipping {
 public:
  GradientClipping(const ParameterGroups& groups, at::Device device);

  // Returns, for each of ParameterGroups.optimizer, the divisor of its gradients: float32, no
  // dimensions. `norms` are the norms of all scaled gradients (float32 [parameters]); `norm` is the
  // global norm, unscaled.
  std::vector<at::Tensor> Divisors(const at::Tensor& norms, const at::Tensor& norm,
                                   const at::Tensor& scale) const;

 private:
  const std::vector<ClippedGroup> clipped_;
  const size_t optimizer_groups_;
  // Per group of clipped_, its parameters: int64, on the device. Undefined if it has all of them.
  std::vector<at::Tensor> parameters_;
};

}  // namespace genesis
