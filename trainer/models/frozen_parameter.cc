#include "trainer/models/frozen_parameter.h"

namespace genesis {

// With a version counter of its own, so that it shows which of the two was written to.
FrozenParameter::FrozenParameter(const torch::Tensor& used)
    : used_(used),
      exact_(used.variable_data()),
      used_version_(used_._version()),
      exact_version_(exact_._version()) {}

void FrozenParameter::Follow(torch::ScalarType format) {
  const torch::NoGradGuard no_grad;
  const bool moved = used_._version() != used_version_;
  moves_ = moves_ || moved;
  const bool floats = used_.is_floating_point();
  const bool apart = floats && used_.scalar_type() != torch::kFloat;
  const bool written = apart && exact_._version() != exact_version_;
  if (apart && !written && moved) exact_.copy_(used_);
  if (written || (floats && used_.scalar_type() != format)) {
    used_.set_data(format == torch::kFloat
                       ? exact_
                       : exact_.to(format, /*non_blocking=*/false, /*copy=*/true));
  }
  used_version_ = used_._version();
  exact_version_ = exact_._version();
}

}  // namespace genesis
