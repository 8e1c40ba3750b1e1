#pragma once

#include <torch/torch.h>

#include <cstdint>
#include <optional>
#include <string>

#include "absl/status/status.h"
#include "genesis/training/v1/worker_service.pb.h"
#include "trainer/checkpoint/training_state.h"
#include "trainer/data/trajectory_dataset.h"
#include "trainer/models/world_model.h"
#include "trainer/optim/fused_adamw.h"
#include "trainer/precision/grad_scaler.h"
#include "trainer/run/train_step.h"
#include "trainer/run/transition_source.h"

namespace genesis {

// All that one job trains with, built from its specification: model, data source, optimizer, scaler
// and step, on one device; and how their state is taken and put back.
//
// Owner: the run; the dataset outlives it. Threads: one. Failure: exceptions of LibTorch.
class Trainee {
 public:
  // Requires batch_size <= dataset.training_size.
  Trainee(const training::v1::StartJob& start, const TrajectoryDataset& dataset);
  Trainee(const Trainee&) = delete;
  Trainee& operator=(const Trainee&) = delete;

  TrainStep& step() { return step_; }
  const TransitionSource& source() const { return source_; }
  const WorldModel& model() const { return model_; }
  at::Device device() const { return device_; }
  // Floating-point operations of one micro-batch, forward and backward, about.
  int64_t OperationsPerPass() const;

  // A copy of everything on the CPU; waits for the device. `position` lacks the sampler's place,
  // which is filled in here.
  TrainingState TakeState(RunPosition position) const;

  // INVALID_ARGUMENT, with nothing changed, when `state` is of another model.
  absl::Status PutState(const TrainingState& state);

 private:
  absl::Status CheckFits(const TrainingState& state) const;

  const at::Device device_;
  const uint64_t seed_;
  WorldModel model_;
  TransitionSource source_;
  FusedAdamW optimizer_;
  std::optional<GradScaler> scaler_;
  TrainStep step_;
};

}  // namespace genesis
