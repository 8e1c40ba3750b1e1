#pragma once

#include <torch/torch.h>

#include <cstdint>

#include "trainer/data/trajectory_dataset.h"

namespace genesis {

// What is known of a batch of transitions, in the units of the recording. [B, columns] each;
// reward and done have one column.
struct TransitionBatch {
  torch::Tensor observation, action, change, reward, done;
};

// What the model predicts, in the units of the recording.
struct WorldModelOutput {
  torch::Tensor next_observation, reward, done_logit;
};

// A one-step world model: encoder, latent dynamics, and three heads. It takes and gives recorded
// units; the statistics that it normalises by are buffers and so part of its state dict. Parameters
// carry the names that a Python nn.Module of the same build would give them (encoder.0.weight).
//
// Owner: the run. Threads: one at a time. Failure: exceptions of LibTorch.
class WorldModelImpl : public torch::nn::Module {
 public:
  // Weights are drawn as torch.nn.Linear does, after torch.manual_seed(seed), so a Python twin
  // built under the same seed starts equal.
  WorldModelImpl(const TrajectoryDataset& dataset, int64_t hidden_size, int64_t latent_size,
                 uint64_t seed);

  WorldModelOutput forward(const torch::Tensor& observation, const torch::Tensor& action);

  // Mean squared errors of the normalised change of the observation and of the normalised reward,
  // plus the binary cross-entropy of done: a float32 scalar. `autocast` is the number format of the
  // layers (see AutocastGuard); the losses are computed in float32 outside of it.
  torch::Tensor Loss(const TransitionBatch& batch, c10::optional<torch::ScalarType> autocast);

 private:
  // Predictions in normalised units.
  struct Heads {
    torch::Tensor change, reward, done_logit;
  };
  Heads Predict(const torch::Tensor& observation, const torch::Tensor& action);

  torch::nn::Sequential encoder_{nullptr}, dynamics_{nullptr};
  torch::nn::Sequential change_head_{nullptr}, reward_head_{nullptr}, done_head_{nullptr};
  torch::Tensor observation_mean_, observation_std_, action_mean_, action_std_;
  torch::Tensor change_mean_, change_std_, reward_mean_, reward_std_;
};
TORCH_MODULE(WorldModel);

}  // namespace genesis
