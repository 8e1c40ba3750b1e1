#pragma once

#include <ATen/ATen.h>

#include <cstdint>

namespace genesis {

struct GradScalerOptions {
  double initial_scale = 65536.0;
  double growth_factor = 2.0;
  double backoff_factor = 0.5;
  int64_t growth_interval = 2000;
};

// The five entries of torch.amp.GradScaler's state dict.
struct GradScalerState {
  double scale = 65536.0;
  double growth_factor = 2.0;
  double backoff_factor = 0.5;
  int64_t growth_interval = 2000;
  int64_t growth_tracker = 0;
};

// Dynamic loss scaling with the arithmetic of torch.amp.GradScaler, bit for bit: after a step with
// an overflow the scale is multiplied by the backoff factor, after growth_interval steps without
// one by the growth factor. Scale and tracker live on the device, so no call waits for it.
//
// Owner: the run. Threads: one. Failure: exceptions of LibTorch.
class GradScaler {
 public:
  GradScaler(const GradScalerOptions& options, at::Device device);

  at::Tensor Scale(const at::Tensor& loss) const { return loss * scale_; }
  // float32, no dimensions, on the device.
  const at::Tensor& scale() const { return scale_; }
  // `found_inf`: float32 on the device; 1 where a gradient of the step was not finite, else 0.
  void Update(const at::Tensor& found_inf);

  // Waits for the device.
  GradScalerState state() const;
  // Takes scale and tracker; factors and interval stay those of the job.
  void LoadState(const GradScalerState& state);

 private:
  const GradScalerOptions options_;
  at::Tensor scale_;           // float32
  at::Tensor growth_tracker_;  // int32
};

}  // namespace genesis
