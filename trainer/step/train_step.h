#pragma once

#include <torch/torch.h>

#include <array>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "c10/core/Event.h"
#include "trainer/accel/step_graph.h"
#include "trainer/checkpoint/state_copy.h"
#include "trainer/distributed/gradient_reducer.h"
#include "trainer/distributed/optimizer_shards.h"
#include "trainer/distributed/rank_group.h"
#include "trainer/models/model.h"
#include "trainer/optim/gradient_clipping.h"
#include "trainer/optim/master_weights.h"
#include "trainer/optim/optimizer.h"
#include "trainer/optim/schedule.h"
#include "trainer/optim/weight_average.h"
#include "trainer/precision/format.h"
#include "trainer/precision/grad_scaler.h"
#include "trainer/step/batch_source.h"
#include "trainer/step/captured_step.h"
#include "trainer/step/fault_injection.h"
#include "trainer/step/gradient_exchange.h"
#include "trainer/step/loss_and_gradients.h"

namespace genesis {

// The parts that a step works on. All of them outlive the step.
struct StepParts {
  Model& model;
  BatchSource& source;
  MasterWeights& weights;
  Optimizer& optimizer;
  const GradientClipping& clipping;
  WeightAverage* average = nullptr;  // Null where the job keeps none.
  const Schedule& schedule;
  const FaultInjection& faults;
  // Null where the job is trained by this process alone.
  RankGroup* ranks = nullptr;
  GradientReducer* reducer = nullptr;
  OptimizerShards* shards = nullptr;  // Null also where each rank has the whole optimizer.
};

struct TrainStepOptions {
  int64_t gradient_accumulation_steps = 1;
  uint64_t seed = 0;      // Of the random numbers of several ranks.
  StepGraphMaker graphs;  // Empty: each step is made anew.
};

// The metrics of a finished step.
struct StepMetrics {
  double loss = 0;             // Mean over the micro-batches, and over the ranks.
  double grad_norm = 0;        // Unscaled, before clipping.
  double loss_scale = 1;       // That the step used.
  double next_loss_scale = 1;  // After the step.
  double learning_rate = 0;    // That the step used, of parameters in no group.
  bool skipped = false;        // A gradient was not finite: weights and buffers are as before.
};

// The inputs of a step, kept until it is known to be good: enough to recompute it.
struct StepEvidence {
  std::vector<std::vector<int64_t>> examples;  // Of each micro-batch.
  torch::Tensor generator;                     // State of torch's CPU generator before the step.
  torch::Tensor gradient_norms;                // float32 [parameters], scaled, on the device.
};

// One optimizer step, in order: micro-batches forward and backward, means over the ranks where
// there are several, global norm, finite test, clip and unscale folded into one factor, fused
// optimizer, average, scale update, and buffers as before where nothing was updated. The device is
// never waited for in Run; figures of a step are fetched while the next one runs. Where the device
// captures (TrainStepOptions.graphs), a step of the same operations is captured once and then
// replayed.
//
// Owner: the run. Threads: one. Failure: exceptions of LibTorch, RunFailure from the source.
class TrainStep {
 public:
  TrainStep(const StepParts& parts, const TrainStepOptions& options);

  // The format of the next steps. `scaler` is null where the mode has no loss scale, `compiled`
  // where the mode has no compiled step; it outlives its use. Requires unread() == 0, and that the
  // master weights are in the format.
  void SetFormat(const StepFormat& format, GradScaler* scaler, CompiledStep* compiled);
  // The steps that were applied before the next one. Requires unread() == 0.
  void SetApplied(int64_t applied) { applied_ = applied; }

  // The next update waits until this copy of what it changes is made. Requires that one before was
  // awaited.
  void WaitFor(std::shared_ptr<StateCopy> copy) { copy_ = std::move(copy); }
  void AwaitCopy() {
    if (copy_ != nullptr) std::exchange(copy_, nullptr)->HoldUpdate();
  }

  // Makes step number `step`. Requires that fewer than two steps are unread.
  void Run(int64_t step);

  int unread() const { return unread_; }
  // Figures of the oldest step not yet read. Waits for that step; called with one younger step
  // under way, that is a step that has long ended. Requires unread() > 0.
  StepMetrics Read();
  // The inputs of the step that was read last.
  const StepEvidence& evidence() const { return evidence_; }
  // Applied steps among those that were read, and before.
  int64_t applied() const { return applied_; }

  // Why the steps of this format are run eagerly; empty where they are captured and replayed.
  const std::string& eager_because() const { return eager_because_; }
  // Memory that steps use has moved: the next ones run eagerly, and one is captured again.
  void ForgetCapture();
  // The line for the log about a capture since the last call; mostly empty.
  std::string TakeLogLine() { return std::exchange(log_line_, {}); }

 private:
  // One step on its way from and to the host; pinned where the device is CUDA.
  struct Slot {
    // The factor of the learning rates: what a skipped step before adds to it, and the factor after
    // an applied one.
    torch::Tensor rates;    // float32 [2]
    torch::Tensor metrics;  // float32 [5]
    std::optional<c10::Event> copied;
    StepEvidence evidence;
  };
  // One micro-batch; `unusual` asks for eager, see LossAndGradients.
  struct Drawn {
    Batch batch;
    bool unusual = false;
  };

  void PrepareRank(int64_t step) const;

  // Gives micro-batch number i of the step.
  using NextBatch = std::function<Drawn(int64_t)>;

  Drawn Draw(int64_t step, int64_t micro_batch, StepEvidence& evidence);
  StepResults MakeOrRepeat(int64_t step, StepEvidence& evidence);
  // A step; while it is `captured`, what the device does of it.
  StepResults Make(int64_t step, const NextBatch& next, bool captured = false);
  torch::Tensor AccumulateGradients(int64_t step, const NextBatch& next);
  void Reprioritize();

  std::string ReasonForEager(const CompiledStep* compiled) const;
  // Whether there is a capture now.
  bool Capture(int64_t step, const std::vector<Batch>& micro_batches);

  void SetRates(Slot& slot);
  Optimizer::RateFactor RateFactor() const;
  void SendFigures(Slot& slot, const torch::Tensor& metrics);
  Slot& OldestUnread();

  const StepParts parts_;
  const TrainStepOptions options_;
  StepFormat format_;
  GradScaler* scaler_ = nullptr;
  LossAndGradients loss_and_gradients_;
  std::optional<GradientExchange> exchange_;  // Of several ranks.
  const torch::Tensor one_;                   // The scale of modes that have none.
  const torch::Tensor last_found_inf_;        // Of the newest step, on the device.
  const torch::Tensor rates_;                 // Those of the newest step, on the device.
  int64_t applied_ = 0;
  std::array<Slot, 2> slots_;
  int next_slot_ = 0;
  int unread_ = 0;
  StepEvidence evidence_;
  std::shared_ptr<StateCopy> copy_;

  std::string eager_because_;
  int eager_steps_ = 0;  // Steps since there was nothing captured.
  std::optional<CapturedStep> captured_;
  std::string log_line_;
};

}  // namespace genesis
