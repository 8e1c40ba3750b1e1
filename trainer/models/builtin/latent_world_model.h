#pragma once

#include <torch/torch.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "trainer/models/base/module_model.h"

namespace genesis {

class WorldModelModule;

// The predictions in recorded units, per step if there are actions for several steps.
struct Forecast {
  torch::Tensor next_observation, reward, done_logit;
};

// A world model: encoder, latent dynamics (MLP or GRU), and heads for the change of the
// observation, the reward and the end of the episode. Inputs and outputs are in recorded units; the
// statistics for normalisation are buffers and so part of its state dict. With rollouts only the
// first observation is encoded, and the latent state is rolled forward with the actions and decoded
// at each step. An ensemble trains its members together and predicts their mean.
//
// Owner: the run. Threads: one at a time. Failure: exceptions of LibTorch.
class LatentWorldModel : public ModuleModel {
 public:
  // See BuildModel.
  static absl::StatusOr<std::unique_ptr<Model>> Build(const training::v1::JobSpec& spec,
                                                      const Dataset& dataset);

  // Builds the model without data, for predictions, with the sizes of the statistics in `weights`,
  // which are not loaded. INVALID_ARGUMENT if they are not weights of a world model.
  static absl::StatusOr<std::unique_ptr<LatentWorldModel>> BuildFor(
      const training::v1::WorldModelSpec& spec, const NamedTensors& weights);

  // Predicts one step from observation [B, O] and action [B, A], or H steps with [B, H, A].
  Forecast forward(const torch::Tensor& observation, const torch::Tensor& action);

  void To(torch::Device device) override;
  // Returns the sum of three means over steps and members: the squared errors of the normalised
  // observation change and reward, and the binary cross-entropy of done.
  torch::Tensor Loss(const Batch& batch, std::optional<torch::ScalarType> autocast) override;
  torch::Tensor ExampleLosses() const override;
  std::vector<MetricSum> Evaluate(const Batch& batch) override;
  int64_t OperationsPerExample() const override;

  // Predictions or targets in normalised units: [B, columns] or [B, H, columns].
  struct Heads {
    torch::Tensor change, reward, done;
  };

 private:
  LatentWorldModel(std::shared_ptr<WorldModelModule> module, torch::Tensor next_observation_mean,
                   int64_t rollout_steps);

  // Returns the predictions of each member.
  std::vector<Heads> Predict(const torch::Tensor& observation, const torch::Tensor& action);
  Heads Targets(const Batch& batch) const;
  Forecast ToUnits(const torch::Tensor& observation, const std::vector<Heads>& members) const;

  const std::shared_ptr<WorldModelModule> module_;
  const int64_t rollout_steps_;
  torch::Tensor next_observation_mean_;  // For the metric mean_error; not part of the state.
  // Detached values of the last Loss. The losses of its examples are computed on request, because
  // few jobs need them.
  std::vector<Heads> last_predictions_;
  Heads last_targets_;
};

}  // namespace genesis
