#include "trainer/precision/grad_scaler.h"

#include <limits>

namespace genesis {

GradScaler::GradScaler(const GradScalerOptions& options, at::Device device)
    : options_(options),
      scale_(at::full({}, options.initial_scale, at::TensorOptions(at::kFloat).device(device))),
      growth_tracker_(at::zeros({}, at::TensorOptions(at::kInt).device(device))),
      hysteresis_left_(at::full_like(scale_, static_cast<double>(options.hysteresis))),
      overflows_since_change_(at::zeros_like(scale_)),
      steps_since_change_(at::zeros_like(scale_)) {}

void GradScaler::Update(const at::Tensor& found_inf) {
  const at::Tensor before = scale_.clone();
  at::_amp_update_scale_(scale_, growth_tracker_, found_inf, options_.growth_factor,
                         options_.backoff_factor, options_.growth_interval);
  if (counts_overflows()) {
    const at::Tensor held = (scale_ < before).logical_and(OverflowCounts(found_inf).logical_not());
    scale_.copy_(at::where(held, before, scale_));
  }
  if (options_.min_scale > 0 || options_.max_scale > 0) {
    const double most =
        options_.max_scale > 0 ? options_.max_scale : std::numeric_limits<float>::max();
    scale_.clamp_(options_.min_scale, most);
  }
  if (!counts_overflows()) return;
  const at::Tensor same = (scale_ == before).to(at::kFloat);
  overflows_since_change_.mul_(same);
  steps_since_change_.mul_(same);
  const at::Tensor refill = options_.refill_on_growth ? scale_ > before : found_inf == 0;
  hysteresis_left_.masked_fill_(refill, static_cast<double>(options_.hysteresis));
}

at::Tensor GradScaler::OverflowCounts(const at::Tensor& found_inf) {
  steps_since_change_.add_(1);
  overflows_since_change_.add_(found_inf);
  hysteresis_left_.sub_(found_inf).clamp_min_(0);
  return (hysteresis_left_ <= 0)
      .logical_and(overflows_since_change_ >= steps_since_change_ * options_.overflow_tolerance);
}

GradScalerState GradScaler::state() const {
  return {.scale = scale_.item<float>(),
          .growth_factor = options_.growth_factor,
          .backoff_factor = options_.backoff_factor,
          .growth_interval = options_.growth_interval,
          .growth_tracker = growth_tracker_.item<int>(),
          .hysteresis_left = static_cast<int64_t>(hysteresis_left_.item<float>()),
          .overflows_since_change = static_cast<int64_t>(overflows_since_change_.item<float>()),
          .steps_since_change = static_cast<int64_t>(steps_since_change_.item<float>())};
}

void GradScaler::LoadState(const GradScalerState& state) {
  scale_.fill_(state.scale);
  growth_tracker_.fill_(state.growth_tracker);
  hysteresis_left_.fill_(static_cast<double>(state.hysteresis_left));
  overflows_since_change_.fill_(static_cast<double>(state.overflows_since_change));
  steps_since_change_.fill_(static_cast<double>(state.steps_since_change));
}

}  // namespace genesis
