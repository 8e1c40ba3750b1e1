#pragma once

#include <torch/torch.h>

#include <vector>

namespace genesis {

// Adds `gradients` to the parameters' own, as a backward pass does. Skips undefined ones: the loss
// does not depend on the parameter, and the optimizer does not update it, as in torch.
void AddGradients(const std::vector<torch::Tensor>& parameters,
                  const std::vector<torch::Tensor>& gradients);

}  // namespace genesis
