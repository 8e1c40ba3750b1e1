#include "trainer/predict/served_builtin.h"

#include <cstdint>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "trainer/models/builtin/latent_world_model.h"
#include "trainer/models/builtin/transformer.h"
#include "trainer/predict/input_checks.h"
#include "trainer/step/initial_weights.h"

namespace genesis {
namespace {

using training::v1::JobSpec;

class ServedWorldModel : public ServedModel {
 public:
  ServedWorldModel(std::unique_ptr<LatentWorldModel> model, int64_t trained_steps)
      : model_(std::move(model)), trained_steps_(trained_steps) {
    for (const auto& [name, tensor] : model_->buffers()) {
      if (name == "observation_mean") observations_ = tensor.size(0);
      if (name == "action_mean") actions_ = tensor.size(0);
    }
  }

  absl::Status Load(const NamedTensors& weights) override { return PutWeights(weights, *model_); }

  absl::Status Check(BatchTensors& inputs) const override {
    if (absl::Status named = CheckNames(inputs, {"observation", "action"}); !named.ok()) {
      return named;
    }
    for (auto& [name, tensor] : inputs) {
      if (absl::Status held = ConvertTo(torch::kFloat, name, tensor); !held.ok()) return held;
    }
    const torch::Tensor& observation = inputs.at("observation");
    const torch::Tensor& action = inputs.at("action");
    if (observation.dim() != 2 || observation.size(1) != observations_) {
      return ShapeFault("observation", observation, absl::StrCat("[N, ", observations_, "]"));
    }
    const bool rollout = action.dim() == 3;
    if ((action.dim() != 2 && !rollout) || action.size(-1) != actions_ ||
        (rollout && (action.size(1) < 1 || action.size(1) > kMaxRolloutSteps))) {
      return ShapeFault("action", action,
                        absl::StrCat("[N, ", actions_, "], or [N, K, ", actions_,
                                     "] with K from 1 to ", kMaxRolloutSteps));
    }
    return CheckOutput(action.size(0) * (rollout ? action.size(1) : 1) * (observations_ + 2));
  }

  absl::StatusOr<BatchTensors> Predict(const BatchTensors& inputs) override {
    torch::Tensor observation = inputs.at("observation");
    const torch::Tensor& action = inputs.at("action");
    if (action.dim() == 2) return Outputs(model_->forward(observation, action));
    std::vector<torch::Tensor> observations, rewards, dones;
    // Encode again after trained_steps_ steps: longer latent rollouts were not trained.
    for (const torch::Tensor& steps : action.split(trained_steps_, 1)) {
      const BatchTensors outputs = Outputs(model_->forward(observation, steps));
      observations.push_back(outputs.at("next_observation"));
      rewards.push_back(outputs.at("reward"));
      dones.push_back(outputs.at("done"));
      observation = observations.back().select(1, -1);
    }
    return BatchTensors{{"next_observation", torch::cat(observations, 1)},
                        {"reward", torch::cat(rewards, 1)},
                        {"done", torch::cat(dones, 1)}};
  }

 private:
  static BatchTensors Outputs(const Forecast& forecast) {
    return {{"next_observation", forecast.next_observation},
            {"reward", forecast.reward},
            {"done", forecast.done_logit.sigmoid()}};
  }

  const std::unique_ptr<LatentWorldModel> model_;
  const int64_t trained_steps_;
  int64_t observations_ = 0;
  int64_t actions_ = 0;
};

class ServedTransformer : public ServedModel {
 public:
  explicit ServedTransformer(const training::v1::TransformerSpec& spec)
      : model_(Transformer::BuildFor(spec)), spec_(spec) {}

  absl::Status Load(const NamedTensors& weights) override { return PutWeights(weights, *model_); }

  absl::Status Check(BatchTensors& inputs) const override {
    if (absl::Status named = CheckNames(inputs, {"tokens"}); !named.ok()) return named;
    torch::Tensor& tokens = inputs.at("tokens");
    if (tokens.dim() != 2 || tokens.size(1) < 1 || tokens.size(1) > spec_.context_length()) {
      return ShapeFault("tokens", tokens,
                        absl::StrCat("[N, T] with T from 1 to ", spec_.context_length()));
    }
    if (absl::Status held = ConvertTo(torch::kLong, "tokens", tokens); !held.ok()) return held;
    const torch::Tensor bad = tokens.lt(0).logical_or(tokens.ge(spec_.vocabulary_size()));
    if (const auto value = FirstWhere(bad, tokens)) {
      return ValueFault("tokens", *value,
                        absl::StrCat("whole numbers from 0 to ", spec_.vocabulary_size() - 1));
    }
    return CheckOutput(tokens.size(0) * spec_.vocabulary_size());
  }

  absl::StatusOr<BatchTensors> Predict(const BatchTensors& inputs) override {
    return BatchTensors{{"logits", model_->NextToken(inputs.at("tokens"))}};
  }

 private:
  const std::unique_ptr<Transformer> model_;
  const training::v1::TransformerSpec spec_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<ServedModel>> BuildServedWorldModel(const JobSpec& spec,
                                                                   const NamedTensors& weights) {
  auto model = LatentWorldModel::BuildFor(spec.model().world_model(), weights);
  if (!model.ok()) return model.status();
  return std::make_unique<ServedWorldModel>(*std::move(model),
                                            spec.model().world_model().rollout_steps());
}

absl::StatusOr<std::unique_ptr<ServedModel>> BuildServedTransformer(
    const JobSpec& spec, const NamedTensors& /*weights*/) {
  return std::make_unique<ServedTransformer>(spec.model().transformer());
}

}  // namespace genesis
