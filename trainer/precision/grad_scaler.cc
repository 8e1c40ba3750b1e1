#include "trainer/precision/grad_scaler.h"

namespace genesis {

GradScaler::GradScaler(const GradScalerOptions& options, at::Device device)
    : options_(options),
      scale_(at::full({}, options.initial_scale, at::TensorOptions(at::kFloat).device(device))),
      growth_tracker_(at::zeros({}, at::TensorOptions(at::kInt).device(device))) {}

void GradScaler::Update(const at::Tensor& found_inf) {
  at::_amp_update_scale_(scale_, growth_tracker_, found_inf, options_.growth_factor,
                         options_.backoff_factor, options_.growth_interval);
}

GradScalerState GradScaler::state() const {
  return {.scale = scale_.item<float>(),
          .growth_factor = options_.growth_factor,
          .backoff_factor = options_.backoff_factor,
          .growth_interval = options_.growth_interval,
          .growth_tracker = growth_tracker_.item<int>()};
}

void GradScaler::LoadState(const GradScalerState& state) {
  scale_.fill_(state.scale);
  growth_tracker_.fill_(state.growth_tracker);
}

}  // namespace genesis
