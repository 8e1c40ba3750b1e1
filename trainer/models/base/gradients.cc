#include "trainer/models/base/gradients.h"

#include <algorithm>

namespace genesis {
namespace {

// Returns the gradient, copied unless it has its own memory with the parameter's strides: the
// optimizer writes to gradients, and its CPU kernels read them in the parameter's memory order.
torch::Tensor MakeOwn(const torch::Tensor& gradient, const torch::Tensor& parameter, bool shared) {
  if (!shared && gradient.strides() == parameter.strides()) return gradient;
  return torch::empty_like(parameter).copy_(gradient);
}

}  // namespace

void AddGradients(const std::vector<torch::Tensor>& parameters,
                  const std::vector<torch::Tensor>& gradients) {
  std::vector<const void*> seen;
  for (size_t i = 0; i < parameters.size(); ++i) {
    if (!gradients[i].defined()) continue;
    const void* const memory = gradients[i].storage().data();
    const bool shared = std::find(seen.begin(), seen.end(), memory) != seen.end();
    seen.push_back(memory);
    torch::Tensor& sum = parameters[i].mutable_grad();
    if (sum.defined()) {
      sum.add_(gradients[i]);
    } else {
      sum = MakeOwn(gradients[i], parameters[i], shared);
    }
  }
}

}  // namespace genesis
