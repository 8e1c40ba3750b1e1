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
#include "trainer/cuda/step_graph.h"
#include "trainer/distributed/gradient_reducer.h"
#include "trainer/distributed/optimizer_shards.h"
#include "trainer/distributed/rank_group.h"
#include "trainer/models/base/model.h"
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

// The parts that a step uses. All of them outlive the step.
struct StepParts {
  Model& model;
  BatchSource& source;
  MasterWeights& weights;
  Optimizer& optimizer;
  const GradientClipping& clipping;
  WeightAverage* average = nullptr;  // Null if the job has none.
  const Schedule& schedule;
  const FaultInjection& faults;
  RankGroup& ranks;
  GradientReducer* reducer = nullptr;  // Null if this process trains the job alone.
  OptimizerShards* shards = nullptr;   // Also null if each rank has the whole optimizer.
};

struct TrainStepOptions {
  int64_t gradient_accumulation_steps = 1;
  uint64_t seed = 0;      // Seed of the random numbers of several ranks.
  StepGraphMaker graphs;  // If empty, every step runs eagerly.
};

// The metrics of a finished step.
struct StepMetrics {
  double loss = 0;             // Mean over the micro-batches and the ranks.
  double grad_norm = 0;        // Unscaled, before clipping.
  double loss_scale = 1;       // Loss scale used by the step.
  double next_loss_scale = 1;  // Loss scale after the step.
  double learning_rate = 0;    // Learning rate used by the step for parameters in no group.
  bool skipped = false;        // A gradient was not finite; weights and buffers are unchanged.
};

// The inputs of a step, kept until the step is known to be good. They suffice to recompute it.
struct StepEvidence {
  std::vector<std::vector<int64_t>> examples;  // Per micro-batch.
  torch::Tensor generator;                     // State of torch's CPU generator before the step.
  torch::Tensor gradient_norms;                // float32 [parameters], scaled, on the device.
};

// One optimizer step, in order: forward and backward of the micro-batches, means over the ranks if
// there are several, global norm, finite test, clip and unscale folded into one factor, fused
// optimizer, average, scale update, and restored buffers if the update was skipped. Run waits for
// the device only to send gradients through the host or to set priorities; the metrics of a step
// are read while the next one runs. If the device supports capture (TrainStepOptions.graphs), a
// step of the same operations is captured once and then replayed.
//
// Owner: the run. Threads: one. Failure: exceptions of LibTorch, RunFailure from the source.
class TrainStep {
 public:
  TrainStep(const StepParts& parts, const TrainStepOptions& options);

  // Sets the format of the next steps. `scaler` is null if the mode has no loss scale. `compiled`
  // is null if the mode has no compiled step; it outlives its use. Requires unread() == 0 and
  // master weights in this format.
  void SetFormat(const StepFormat& format, GradScaler* scaler, CompiledStep* compiled);
  // Sets the number of steps applied before the next one. Requires unread() == 0.
  void SetApplied(int64_t applied) { applied_ = applied; }
  // Sets the number of plateaus that the learning rate schedule has reached. Requires unread() == 0.
  void SetRateReductions(int64_t reductions) { rate_reductions_ = reductions; }

  // Makes the next update wait for a copy of the weights: it calls `await`, which returns once the
  // weights may change.
  void WaitFor(std::function<void()> await) { copies_.push_back(std::move(await)); }
  // Waits for the copies now.
  void AwaitCopy() {
    for (const std::function<void()>& await : std::exchange(copies_, {})) await();
  }

  // Runs step number `step`. Requires fewer than two unread steps.
  void Run(int64_t step);

  int unread() const { return unread_; }
  // Returns the metrics of the oldest unread step. Waits for that step, which has long ended if a
  // younger one is in flight. Requires unread() > 0.
  StepMetrics Read();
  // The inputs of the step that was last read.
  const StepEvidence& evidence() const { return evidence_; }
  // Number of applied steps up to the last one read.
  int64_t applied() const { return applied_; }
  int64_t rate_reductions() const { return rate_reductions_; }

  // Why steps of this format run eagerly; empty if they are captured and replayed.
  const std::string& eager_because() const { return eager_because_; }
  // Call after memory that steps use has moved: the next steps run eagerly, until a step is
  // captured again.
  void ForgetCapture();
  // Returns the log line about a capture since the last call; usually empty.
  std::string TakeLogLine() { return std::exchange(log_line_, {}); }

 private:
  // Host buffers of one step; pinned if the device is CUDA.
  struct Slot {
    // The learning-rate factor as two numbers: the first is added if the previous step was skipped,
    // the second is the factor if it was applied.
    torch::Tensor rates;    // float32 [2]
    torch::Tensor metrics;  // float32 [5]
    std::optional<c10::Event> copied;
    StepEvidence evidence;
  };
  // One micro-batch. `unusual` requests eager execution, see LossAndGradients.
  struct Drawn {
    Batch batch;
    bool unusual = false;
  };

  void PrepareRank(int64_t step) const;

  // Returns micro-batch number i of the step.
  using NextBatch = std::function<Drawn(int64_t)>;

  Drawn Draw(int64_t step, int64_t micro_batch, StepEvidence& evidence);
  StepResults MakeOrRepeat(int64_t step, StepEvidence& evidence);
  // Runs a step. While it is `captured`, runs only the device's part.
  StepResults Make(int64_t step, const NextBatch& next, bool captured = false);
  torch::Tensor AccumulateGradients(int64_t step, const NextBatch& next);
  void Reprioritize();

  std::string ReasonForEager(const CompiledStep* compiled) const;
  // Returns whether there is a capture now.
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
  std::optional<GradientExchange> exchange_;  // Set if there are several ranks.
  const torch::Tensor one_;                   // The scale of modes without a loss scale.
  const torch::Tensor last_found_inf_;        // found_inf of the newest step, on the device.
  const torch::Tensor rates_;                 // Rates of the newest step, on the device.
  int64_t applied_ = 0;
  int64_t rate_reductions_ = 0;
  std::array<Slot, 2> slots_;
  int next_slot_ = 0;
  int unread_ = 0;
  StepEvidence evidence_;
  std::vector<std::function<void()>> copies_;  // In flight; see WaitFor.

  std::string eager_because_;
  int eager_steps_ = 0;  // Eager steps since ForgetCapture.
  std::optional<CapturedStep> captured_;
  std::string log_line_;
};

}  // namespace genesis
