#include "trainer/precision/grad_scaler.h"

#include <limits>

namespace genesis {

GradScaler::GradScaler(const GradScalerOptions& options, at::Device device)
    : options_(options),
      scale_(at::full({}, options.initial_scale, at::TensorOptions(at::kFloat).device(device))),
      growth_tracker_(at::zeros({}, at::TensorOptions(at::kInt).device(device))),
      hysteresis_left_(at::full_like(scale_, static_cast<double>(options.hysteresis))) {}

void GradScaler::Update(const at::Tensor& found_inf) {
  const at::Tensor before = scale_.clone();
  at::_amp_update_scale_(scale_, growth_tracker_, found_inf, options_.growth_factor,
                         options_.backoff_factor, options_.growth_interval);
  if (options_.hysteresis > 1) {
    hysteresis_left_.sub_(found_inf).clamp_min_(0);
    const at::Tensor held = (scale_ < before).logical_and(hysteresis_left_ > 0);
    scale_.copy_(at::where(held, before, scale_));
    hysteresis_left_.masked_fill_(found_inf == 0, static_cast<double>(options_.hysteresis));
  }
  if (options_.min_scale > 0 || options_.max_scale > 0) {
    const double most =
        options_.max_scale > 0 ? options_.max_scale : std::numeric_limits<float>::max();
    scale_.clamp_(options_.min_scale, most);
  }
}

GradScalerState GradScaler::state() const {
  return {.scale = scale_.item<float>(),
          .growth_factor = options_.growth_factor,
          .backoff_factor = options_.backoff_factor,
          .growth_interval = options_.growth_interval,
          .growth_tracker = growth_tracker_.item<int>(),
          .hysteresis_left = static_cast<int64_t>(hysteresis_left_.item<float>())};
}

void GradScaler::LoadState(const GradScalerState& state) {
  scale_.fill_(state.scale);
  growth_tracker_.fill_(state.growth_tracker);
  hysteresis_left_.fill_(static_cast<double>(state.hysteresis_left));
}

}  // namespace genesis
