#include "trainer/optim/gradient_clipping.h"

namespace genesis {
namespace {

// torch.nn.utils.clip_grad_norm_ adds this number to the norm before dividing by the norm.
constexpr double kClipEpsilon = 1e-6;

}  // namespace

GradientClipping::GradientClipping(const ParameterGroups& groups, at::Device device)
    : clipped_(groups.clipped), optimizer_groups_(groups.optimizer.size()) {
  for (const ClippedGroup& clipped : clipped_) {
    std::vector<int64_t> numbers;
    for (const int64_t group : clipped.optimizer_groups) {
      const auto& own = groups.optimizer[static_cast<size_t>(group)].parameters;
      numbers.insert(numbers.end(), own.begin(), own.end());
    }
    parameters_.push_back(clipped_.size() == 1 ? at::Tensor()
                                               : at::tensor(numbers, at::kLong).to(device));
  }
}

std::vector<at::Tensor> GradientClipping::Divisors(const at::Tensor& norms, const at::Tensor& norm,
                                                   const at::Tensor& scale) const {
  std::vector<at::Tensor> divisors(optimizer_groups_, scale);
  for (size_t i = 0; i < clipped_.size(); ++i) {
    const ClippedGroup& clipped = clipped_[i];
    if (!clipped.max_norm || clipped.optimizer_groups.empty()) continue;
    const at::Tensor own =
        parameters_[i].defined()
            ? at::linalg_vector_norm(norms.index_select(0, parameters_[i])) / scale
            : norm;
    const at::Tensor divisor = scale / (*clipped.max_norm / (own + kClipEpsilon)).clamp_max(1.0);
    for (const int64_t group : clipped.optimizer_groups) {
      divisors[static_cast<size_t>(group)] = divisor;
    }
  }
  return divisors;
}

}  // namespace genesis
