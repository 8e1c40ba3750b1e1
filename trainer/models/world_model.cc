#include "trainer/models/world_model.h"

#include <optional>
#include <vector>

#include "trainer/precision/autocast_guard.h"

namespace genesis {
namespace {

namespace nn = torch::nn;
namespace F = torch::nn::functional;

// Linear layers between the given widths, SiLU between them. One after another, for the order in
// which they are made is the order in which the generator is drawn from.
nn::Sequential Layers(const std::vector<int64_t>& widths) {
  nn::Sequential layers;
  for (size_t i = 0; i + 1 < widths.size(); ++i) {
    if (i > 0) layers->push_back(nn::SiLU());
    layers->push_back(nn::Linear(widths[i], widths[i + 1]));
  }
  return layers;
}

}  // namespace

WorldModelImpl::WorldModelImpl(const TrajectoryDataset& dataset, int64_t hidden_size,
                               int64_t latent_size, uint64_t seed) {
  torch::manual_seed(seed);
  const int64_t observation = dataset.observation_size;
  const int64_t action = dataset.action_size;
  encoder_ = register_module("encoder", Layers({observation, hidden_size, latent_size}));
  dynamics_ = register_module(
      "dynamics", Layers({latent_size + action, hidden_size, hidden_size, latent_size}));
  change_head_ = register_module("change_head", Layers({latent_size, hidden_size, observation}));
  reward_head_ = register_module("reward_head", Layers({latent_size, hidden_size, 1}));
  done_head_ = register_module("done_head", Layers({latent_size, hidden_size, 1}));

  const auto buffer = [this](const char* name, const std::vector<float>& values) {
    return register_buffer(name, torch::tensor(values));
  };
  observation_mean_ = buffer("observation_mean", dataset.observation_statistics.mean);
  observation_std_ = buffer("observation_std", dataset.observation_statistics.deviation);
  action_mean_ = buffer("action_mean", dataset.action_statistics.mean);
  action_std_ = buffer("action_std", dataset.action_statistics.deviation);
  change_mean_ = buffer("change_mean", dataset.change_statistics.mean);
  change_std_ = buffer("change_std", dataset.change_statistics.deviation);
  reward_mean_ = buffer("reward_mean", dataset.reward_statistics.mean);
  reward_std_ = buffer("reward_std", dataset.reward_statistics.deviation);
}

WorldModelImpl::Heads WorldModelImpl::Predict(const torch::Tensor& observation,
                                              const torch::Tensor& action) {
  const torch::Tensor latent =
      encoder_->forward((observation - observation_mean_) / observation_std_);
  const torch::Tensor normal_action = (action - action_mean_) / action_std_;
  // The dynamics say how the latent state moves; the latent state itself passes by.
  const torch::Tensor next =
      latent + dynamics_->forward(torch::cat({latent, normal_action.to(latent.dtype())}, 1));
  return {.change = change_head_->forward(next),
          .reward = reward_head_->forward(next),
          .done_logit = done_head_->forward(next)};
}

WorldModelOutput WorldModelImpl::forward(const torch::Tensor& observation,
                                         const torch::Tensor& action) {
  const Heads heads = Predict(observation, action);
  const auto single = [](const torch::Tensor& t) { return t.to(torch::kFloat); };
  return {.next_observation = observation + single(heads.change) * change_std_ + change_mean_,
          .reward = single(heads.reward) * reward_std_ + reward_mean_,
          .done_logit = single(heads.done_logit)};
}

torch::Tensor WorldModelImpl::Loss(const TransitionBatch& batch,
                                   c10::optional<torch::ScalarType> autocast) {
  std::optional<Heads> heads;
  {
    const AutocastGuard guard(batch.observation.device().type(), autocast);
    heads = Predict(batch.observation, batch.action);
  }
  const torch::Tensor change = (batch.change - change_mean_) / change_std_;
  const torch::Tensor reward = (batch.reward - reward_mean_) / reward_std_;
  return F::mse_loss(heads->change.to(torch::kFloat), change) +
         F::mse_loss(heads->reward.to(torch::kFloat), reward) +
         F::binary_cross_entropy_with_logits(heads->done_logit.to(torch::kFloat), batch.done);
}

}  // namespace genesis
