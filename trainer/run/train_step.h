#pragma once

#include <torch/torch.h>

#include <array>
#include <cstdint>
#include <optional>
#include <vector>

#include "c10/core/Event.h"
#include "trainer/models/world_model.h"
#include "trainer/optim/fused_adamw.h"
#include "trainer/precision/grad_scaler.h"
#include "trainer/run/transition_source.h"

namespace genesis {

struct TrainStepOptions {
  int64_t gradient_accumulation_steps = 1;
  // Global L2 norm that gradients are clipped to; nullopt for no clipping.
  std::optional<double> max_grad_norm;
  // Number format of the layers; nullopt for float32.
  std::optional<at::ScalarType> autocast;
};

// What a finished step says of itself.
struct StepFigures {
  double loss = 0;             // Mean over the micro-batches.
  double grad_norm = 0;        // Unscaled, before clipping.
  double loss_scale = 1;       // That the step used.
  double next_loss_scale = 1;  // After the step.
  bool skipped = false;        // A gradient was not finite; nothing was updated.
};

// One optimizer step, in order: micro-batches forward and backward, global norm, finite test, clip
// and unscale folded into one factor, fused AdamW, scale update. The device is never waited for in
// Run; figures of a step are fetched while the next one runs.
//
// Owner: the run; everything passed in outlives it. Threads: one. Failure: exceptions of LibTorch.
class TrainStep {
 public:
  // `scaler` is null where the mode has no loss scale.
  TrainStep(WorldModel model, TransitionSource& source, FusedAdamW& optimizer, GradScaler* scaler,
            const TrainStepOptions& options);

  // Makes a step. Requires that fewer than two steps are unread.
  void Run();

  int unread() const { return unread_; }
  // Figures of the oldest step not yet read. Waits for that step; called with one younger step
  // under way, that is a step that has long ended. Requires unread() > 0.
  StepFigures Read();

 private:
  // Figures of one step on their way to the host.
  struct Slot {
    torch::Tensor host;  // float32 [5]; pinned where the device is CUDA
    std::optional<c10::Event> copied;
  };

  torch::Tensor AccumulateGradients();
  torch::Tensor ScaledGradientNorm() const;
  void SendFigures(const std::vector<torch::Tensor>& figures);

  WorldModel model_;
  TransitionSource& source_;
  FusedAdamW& optimizer_;
  GradScaler* const scaler_;
  const TrainStepOptions options_;
  const torch::Tensor one_;  // The scale of modes that have none.
  std::array<Slot, 2> slots_;
  int next_slot_ = 0;
  int unread_ = 0;
};

}  // namespace genesis
