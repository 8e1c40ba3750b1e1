#pragma once

#include <torch/torch.h>

#include <cstdint>
#include <optional>

#include "c10/core/Event.h"
#include "trainer/distributed/rank_group.h"
#include "trainer/precision/pair_evidence.h"
#include "trainer/step/training_session.h"

namespace genesis {

// A PairedLossReading is a pair of losses in flight from the device: created without waiting, and
// read a step later, when it has long arrived.
//
// Owner: the precision guard; the ranks outlive it. Threads: one. Failure: exceptions of LibTorch.
class PairedLossReading {
 public:
  // `losses` is float64 [2] on the device, the reduced format's and FP32's; undefined except on
  // rank 0, whose result the other ranks get.
  PairedLossReading(const torch::Tensor& losses, double rounding_error, RankGroup& ranks);

  PairedLoss Read() const;

 private:
  torch::Tensor losses_;  // On the host; pinned if the device is CUDA.
  std::optional<c10::Event> copied_;
  const double rounding_error_;
  RankGroup& ranks_;
};

// Computes the loss of the last step's batch in the session's mode and in FP32, with the current
// weights and the same random numbers: two forward passes that leave weights, buffers, gradients
// and generators unchanged. Injected faults act on the first loss only, as in `step`. With several
// ranks the batch is rank 0's. Does not wait for the device.
PairedLossReading ComparePrecision(TrainingSession& session, int64_t step);

}  // namespace genesis
