#pragma once

#include <torch/torch.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "trainer/models/base/module_model.h"

namespace genesis {

// The shape of the maps of radio_unet.
struct MapShape {
  int64_t channels = 0;
  int64_t condition_channels = 0;  // 0 if the data has no condition.
  int64_t height = 0;
  int64_t width = 0;
};

// Builds the part of a latent diffusion model (Rombach et al., 2022) that the job selects. See
// BuildModel.
absl::StatusOr<std::unique_ptr<Model>> BuildRadioUnet(const training::v1::JobSpec& spec,
                                                      const Dataset& dataset);

class DiffusionModule;
class AutoencoderModule;

// A U-Net that predicts the noise in a map at a random step of a cosine schedule, from the noisy
// map, the step and, if the data has one, a condition of the same height and width.
//
// Random numbers are drawn on the CPU and moved, so that a run is the same on every device.
// Evaluation uses a separate generator for each example.
//
// Owner: the run. Threads: one at a time. Failure: exceptions of LibTorch.
class MapDiffusion : public ModuleModel {
 public:
  // Draws the weights from the default generator.
  MapDiffusion(const training::v1::RadioUnetSpec& spec, const MapShape& shape);

  // Draws "step" int64 [B] and "noise" in the shape of the maps.
  void Draw(Batch& batch) const override;
  std::vector<Field> drawn() const override;
  // Returns the mean squared error of the noise.
  torch::Tensor Loss(const Batch& batch, std::optional<torch::ScalarType> autocast) override;
  std::vector<MetricSum> Evaluate(const Batch& batch) override;
  int64_t OperationsPerExample() const override;

 private:
  MapDiffusion(std::shared_ptr<DiffusionModule> module, const MapShape& shape);
  // Returns the loss of each example, [B].
  torch::Tensor Losses(const Batch& batch, std::optional<torch::ScalarType> autocast);

  const std::shared_ptr<DiffusionModule> module_;
  const MapShape shape_;
};

// A variational autoencoder of maps: the loss is the mean squared error of the map plus kl_weight
// times the Kullback-Leibler divergence of the latent map from the unit normal, in nats per element
// of the map. Ignores conditions.
//
// Random numbers, owner, threads and failure are as for MapDiffusion.
class MapAutoencoder : public ModuleModel {
 public:
  MapAutoencoder(const training::v1::RadioUnetSpec& spec, const MapShape& shape);

  // Draws "noise" in the shape of the latent maps.
  void Draw(Batch& batch) const override;
  std::vector<Field> drawn() const override;
  torch::Tensor Loss(const Batch& batch, std::optional<torch::ScalarType> autocast) override;
  std::vector<MetricSum> Evaluate(const Batch& batch) override;
  int64_t OperationsPerExample() const override;

 private:
  // Errors of each example, [B].
  struct Errors {
    torch::Tensor reconstruction, divergence;
  };

  MapAutoencoder(std::shared_ptr<AutoencoderModule> module, const MapShape& shape,
                 double kl_weight);
  Errors Measure(const Batch& batch, std::optional<torch::ScalarType> autocast);
  torch::Tensor Weigh(const Errors& errors) const;

  const std::shared_ptr<AutoencoderModule> module_;
  const MapShape shape_;
  const double kl_weight_;
};

// Adds a field drawn on the CPU to the batch, without waiting for its device.
void AddDrawn(const std::string& field, const torch::Tensor& drawn, Batch& batch);
// Returns a generator for one example of an evaluation, independent of how examples are batched.
at::Generator EvaluationGenerator(int64_t example);
// Returns `base_channels` times each multiplier.
std::vector<int64_t> ChannelsOf(const training::v1::RadioUnetSpec& spec);

}  // namespace genesis
