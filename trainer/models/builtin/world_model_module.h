#pragma once

#include <torch/torch.h>

#include <cstdint>
#include <vector>

namespace genesis {

// The layer sizes of a world model.
struct WorldModelSizes {
  int64_t observation = 0;
  int64_t action = 0;
  int64_t hidden = 0;
  int64_t latent = 0;
  bool gru = false;
};

// One set of weights: encoder, dynamics, three heads.
class WorldModelMember : public torch::nn::Module {
 public:
  explicit WorldModelMember(const WorldModelSizes& sizes);

  torch::Tensor Encode(const torch::Tensor& observation) { return encoder_->forward(observation); }
  // Returns the latent state after an action.
  torch::Tensor Advance(const torch::Tensor& latent, const torch::Tensor& action);

  torch::nn::Sequential encoder_{nullptr}, dynamics_{nullptr};
  torch::nn::GRUCell cell_{nullptr};  // Replaces dynamics_, under the same name.
  torch::nn::Sequential change_head_{nullptr}, reward_head_{nullptr}, done_head_{nullptr};
};

// Mean and deviation for normalising one kind of column: buffers of the module.
struct Normalisation {
  torch::Tensor mean, deviation;

  torch::Tensor Apply(const torch::Tensor& t) const { return (t - mean) / deviation; }
};

// The members and the statistics. Parameters of a single member have no prefix (encoder.0.weight);
// several members have prefixes (members.0.encoder.0.weight).
class WorldModelModule : public torch::nn::Module {
 public:
  // Draws the weights from the default generator, one layer after another.
  WorldModelModule(const WorldModelSizes& sizes, int64_t members);

  // Registers the buffers <name>_mean and <name>_std.
  Normalisation AddStatistics(const std::string& name, const std::vector<float>& mean,
                              const std::vector<float>& deviation);

  std::vector<std::shared_ptr<WorldModelMember>> members;
  Normalisation observation, action, change, reward;
};

}  // namespace genesis
