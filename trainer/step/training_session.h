#pragma once

#include <torch/torch.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <set>
#include <string>

#include "absl/status/status.h"
#include "genesis/training/v1/worker_service.pb.h"
#include "trainer/checkpoint/training_state.h"
#include "trainer/compiled/compiled_steps.h"
#include "trainer/cuda/step_graph.h"
#include "trainer/data/dataset.h"
#include "trainer/distributed/gradient_reducer.h"
#include "trainer/distributed/optimizer_shards.h"
#include "trainer/distributed/rank_group.h"
#include "trainer/models/base/model.h"
#include "trainer/optim/gradient_clipping.h"
#include "trainer/optim/master_weights.h"
#include "trainer/optim/optimizer.h"
#include "trainer/optim/parameter_groups.h"
#include "trainer/optim/schedule.h"
#include "trainer/optim/weight_average.h"
#include "trainer/precision/grad_scaler.h"
#include "trainer/step/batch_source.h"
#include "trainer/step/fault_injection.h"
#include "trainer/step/train_step.h"

namespace genesis {

// A `TrainingSession` holds what one job trains with, built from its specification: model, data
// source, optimizer, scaler and step, on one device. It changes precision, and takes and restores
// the state.
//
// Owner: the run; the dataset and the ranks outlive it. Threads: one. Failure: exceptions of
// LibTorch, RunFailure for a model that cannot be built.
class TrainingSession {
 public:
  // Requires batch_size * ranks.size() <= dataset.training_size(). Starts in FP32. `device` is the
  // name in this process: the one visible CUDA device is cuda:0, whatever the daemon calls it.
  // Steps are captured in `graphs` unless it is empty.
  TrainingSession(const training::v1::StartJob& start, const Dataset& dataset, at::Device device,
                  RankGroup& ranks, StepGraphMaker graphs = {});
  TrainingSession(const TrainingSession&) = delete;
  TrainingSession& operator=(const TrainingSession&) = delete;

  TrainStep& step() { return *step_; }
  // Returns the parts of a step, which this session owns. The guard recomputes steps with them.
  StepParts Parts();
  Model& model() { return *model_; }
  BatchSource& source() { return *source_; }
  const FaultInjection& faults() const { return faults_; }
  at::Device device() const { return device_; }
  // Total number of steps of the job.
  int64_t total_steps() const { return total_steps_; }
  // Approximate floating-point operations of one micro-batch, forward and backward.
  int64_t OperationsPerPass() const;

  training::v1::PrecisionMode mode() const { return mode_; }
  // Sets the mode of the next steps; weights and optimizer keep their values. Resets the loss scale
  // unless `keep_scale`. Requires that every step has been read.
  void SetMode(training::v1::PrecisionMode mode, bool keep_scale = false);

  // Describes how the steps of the mode run: "compiled ...", "exported graph, because ...", "eager,
  // because ..." or "captured ...".
  std::string execution();

  // Describes how gradients are exchanged; empty if one process trains.
  std::string exchange() const;

  // The lower bound of the loss scale; 0 if there is no scale or no bound.
  double lowest_loss_scale() const { return scaler_ ? scaler_->options().min_scale : 0; }

  // Number of plateaus that the learning rate schedule has reached.
  int64_t rate_reductions() const { return step_->rate_reductions(); }
  // Counts another plateau and returns the learning rate of the next step. Requires that every step
  // has been read.
  double LowerRate();

  // Waits for the device. Returns nullopt if no mode so far had a scale.
  std::optional<GradScalerState> scaler_state() const {
    return scaler_ ? std::optional(scaler_->state()) : std::nullopt;
  }

  // Copies weights and buffers from rank 0. Requires that every step has been read.
  void FollowFirstRank();

  // Call after each step. If a comparison is due (distributed.weight_check_every_steps), fails
  // unless the weights of all ranks are the same.
  void CheckWeights(int64_t step);

  // A scope in which the model holds the FP32 weights, for evaluation.
  class Fp32Weights {
   public:
    explicit Fp32Weights(TrainingSession& session) : session_(session) {
      session_.weights_->SetFormat(at::kFloat);
    }
    ~Fp32Weights() {
      const at::ScalarType format = FormatOf(session_.mode_).weights;
      session_.weights_->SetFormat(format);
      if (format != at::kFloat) session_.step_->ForgetCapture();
    }
    Fp32Weights(const Fp32Weights&) = delete;
    Fp32Weights& operator=(const Fp32Weights&) = delete;

   private:
    TrainingSession& session_;
  };

  // Returns the tensors of the model's state_dict(), on the device, with the FP32 weights or, if
  // there is one, their average. The next update changes them; see TrainStep::WaitFor.
  NamedTensors CurrentWeights(bool average) const;
  bool has_average() const { return average_.has_value(); }

  // Copies the whole state to the CPU; waits for the device. Fills in the sampler's position, the
  // mode and the applied steps in `position`. The caller adds the state of policy and evaluation.
  TrainingState TakeState(RunPosition position);
  // Same as TakeState, but returns before the copies are complete: large tensors are copied while
  // the next step runs.
  TrainingState BeginState(RunPosition position);

  // Restores a state; the next steps run in `mode`. INVALID_ARGUMENT, with nothing changed, if the
  // state does not match model and optimizer. Requires that every step has been read.
  absl::Status PutState(const TrainingState& state, training::v1::PrecisionMode mode);

 private:
  void GatherOptimizer(OptimizerState& state);
  absl::Status CheckFits(const TrainingState& state) const;
  void TakePlace(const RunPosition& position);
  // Sets the number of steps for the remaining epochs, if the batch size has changed.
  void TakeLength(const RunPosition& position, const SamplerPosition& sampler, bool resized);

  const at::Device device_;
  RankGroup& ranks_;
  const bool captures_;
  const training::v1::JobSpec& spec_;
  std::unique_ptr<Model> model_;
  std::set<std::string> with_infinities_;  // See TrainingState.
  std::unique_ptr<BatchSource> source_;
  CompiledSteps compiled_;
  int64_t total_steps_;
  Schedule schedule_;
  const FaultInjection faults_;
  std::unique_ptr<MasterWeights> weights_;
  const ParameterGroups groups_;
  const GradientClipping clipping_;
  std::unique_ptr<GradientReducer> reducer_;  // Set if there are several ranks.
  std::unique_ptr<OptimizerShards> shards_;   // Set if ranks shard the optimizer's state.
  std::unique_ptr<Optimizer> optimizer_;
  std::optional<WeightAverage> average_;
  std::optional<GradScaler> scaler_;
  std::unique_ptr<TrainStep> step_;
  training::v1::PrecisionMode mode_ = training::v1::PRECISION_MODE_FP32;
};

}  // namespace genesis
