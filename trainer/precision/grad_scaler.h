#pragma once

#include <ATen/ATen.h>

#include <cstdint>

namespace genesis {

struct GradScalerOptions {
  double initial_scale = 65536.0;
  double growth_factor = 2.0;
  double backoff_factor = 0.5;
  int64_t growth_interval = 2000;

  // Options that torch.amp.GradScaler lacks. These defaults give torch's arithmetic.
  double min_scale = 0.0;
  double max_scale = 0.0;  // 0 for none.
  int64_t hysteresis = 1;  // Consecutive overflows until the scale is first reduced (Apex).
};

// The five entries of torch.amp.GradScaler's state dict, then entries that torch lacks.
struct GradScalerState {
  double scale = 65536.0;
  double growth_factor = 2.0;
  double backoff_factor = 0.5;
  int64_t growth_interval = 2000;
  int64_t growth_tracker = 0;

  int64_t hysteresis_left = 1;  // Overflows until the next reduction.
};

// Dynamic loss scaling with the arithmetic of torch.amp.GradScaler, bit for bit: a step with an
// overflow multiplies the scale by the backoff factor; growth_interval steps without one multiply
// it by the growth factor. Bounds and hysteresis are additions. All state is on the
// device, so no call waits for it unless stated.
//
// Owner: the run. Threads: one. Failure: exceptions of LibTorch.
class GradScaler {
 public:
  GradScaler(const GradScalerOptions& options, at::Device device);

  // The factor of the loss: float32, no dimensions, on the device.
  const at::Tensor& scale() const { return scale_; }
  const GradScalerOptions& options() const { return options_; }
  // Adapts the scale. `found_inf`: float32 on the device; 1 if a gradient was not finite, else 0.
  void Update(const at::Tensor& found_inf);

  // Returns the state. Waits for the device.
  GradScalerState state() const;
  // Loads scale, tracker and counts. Factors and interval stay those of the job.
  void LoadState(const GradScalerState& state);

 private:
  const GradScalerOptions options_;
  at::Tensor scale_;            // float32
  at::Tensor growth_tracker_;   // int32
  at::Tensor hysteresis_left_;  // float32
};

}  // namespace genesis
