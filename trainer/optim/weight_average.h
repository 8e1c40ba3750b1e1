#pragma once

#include <ATen/ATen.h>

#include <vector>

namespace genesis {

// An exponential moving average of weights (Polyak and Juditsky, 1992), with the arithmetic of
// torch.optim.swa_utils.get_ema_multi_avg_fn: average += (weight - average) * (1 - decay). A
// skipped step leaves it unchanged without involving the host.
//
// Owner: the run. Threads: one. Failure: exceptions of LibTorch.
class WeightAverage {
 public:
  // Begins at the current weights: float32, shared with the optimizer.
  WeightAverage(std::vector<at::Tensor> weights, double decay);

  // Averages in new weights. `found_inf` (float32, no dimensions): 1 for a skipped update, else 0.
  void Update(const at::Tensor& found_inf);

  const std::vector<at::Tensor>& average() const { return average_; }
  // Replaces the average. Requires one tensor per weight, of the same shape.
  void LoadState(const std::vector<at::Tensor>& average);

 private:
  const double decay_;
  std::vector<at::Tensor> weights_;
  std::vector<at::Tensor> average_;
};

}  // namespace genesis
