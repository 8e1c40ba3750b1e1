#include "trainer/models/builtin/latent_world_model.h"

#include <string>

#include "absl/strings/str_cat.h"
#include "trainer/models/base/dataset_fields.h"
#include "trainer/models/builtin/world_model_module.h"
#include "trainer/precision/autocast_guard.h"

namespace genesis {
namespace {

namespace F = torch::nn::functional;
using Heads = LatentWorldModel::Heads;

// Returns the loss without dimensions, or [B] if the options do not reduce over elements.
torch::Tensor SumOfHeads(const Heads& predicted, const Heads& target,
                         const F::MSELossFuncOptions& mse,
                         const F::BinaryCrossEntropyWithLogitsFuncOptions& cross_entropy) {
  const auto each = [](const torch::Tensor& t) { return t.dim() > 0 ? t.flatten(1).mean(1) : t; };
  return each(F::mse_loss(predicted.change.to(torch::kFloat), target.change, mse)) +
         each(F::mse_loss(predicted.reward.to(torch::kFloat), target.reward, mse)) +
         each(F::binary_cross_entropy_with_logits(predicted.done.to(torch::kFloat), target.done,
                                                  cross_entropy));
}

torch::Tensor MeanOverMembers(const std::vector<torch::Tensor>& members) {
  torch::Tensor sum = members[0];
  for (size_t i = 1; i < members.size(); ++i) sum = sum + members[i];
  return members.size() == 1 ? sum : sum / static_cast<double>(members.size());
}

// Returns the loss without dimensions.
torch::Tensor BatchLoss(const std::vector<Heads>& members, const Heads& targets) {
  std::vector<torch::Tensor> losses;
  for (const Heads& heads : members) losses.push_back(SumOfHeads(heads, targets, {}, {}));
  return MeanOverMembers(losses);
}

// Returns the losses [B].
torch::Tensor LossOfEach(const std::vector<Heads>& members, const Heads& targets) {
  std::vector<torch::Tensor> losses;
  for (const Heads& heads : members) {
    losses.push_back(
        SumOfHeads(heads, targets, torch::kNone,
                   F::BinaryCrossEntropyWithLogitsFuncOptions().reduction(torch::kNone)));
  }
  return MeanOverMembers(losses);
}

Heads Detached(const Heads& heads) {
  return {heads.change.detach(), heads.reward.detach(), heads.done.detach()};
}

std::shared_ptr<WorldModelModule> MakeModule(const training::v1::WorldModelSpec& spec,
                                             int64_t observation, int64_t action) {
  return std::make_shared<WorldModelModule>(
      WorldModelSizes{.observation = observation,
                      .action = action,
                      .hidden = spec.hidden_size(),
                      .latent = spec.latent_size(),
                      .gru = spec.dynamics() == training::v1::WORLD_MODEL_DYNAMICS_GRU},
      spec.ensemble_size());
}

}  // namespace

absl::StatusOr<std::unique_ptr<Model>> LatentWorldModel::Build(const training::v1::JobSpec& spec,
                                                               const Dataset& dataset) {
  const training::v1::WorldModelSpec& model = spec.model().world_model();
  const int64_t steps = model.rollout_steps();
  const DatasetFields fields(spec, dataset,
                             steps > 1
                                 ? absl::StrCat("model.world_model with rollout_steps ", steps)
                                 : "model.world_model");
  const auto columns = [&](const char* name, const char* letter,
                           int64_t size) -> absl::StatusOr<int64_t> {
    std::vector<Dimension> shape = {{letter, size}};
    if (steps > 1) shape.insert(shape.begin(), {"H", steps});
    auto found = fields.Shape(name, shape, {ElementType::kFloat32});
    if (!found.ok()) return found.status();
    return found->back();
  };
  const auto observation = columns("observation", "O", 0);
  if (!observation.ok()) return observation.status();
  const auto action = columns("action", "A", 0);
  if (!action.ok()) return action.status();
  const std::pair<const char*, int64_t> others[] = {
      {"change", *observation}, {"reward", 1}, {"done", 1}};
  for (const auto& [name, size] : others) {
    if (auto found = columns(name, "", size); !found.ok()) return found.status();
  }

  torch::manual_seed(spec.training().seed());
  const std::shared_ptr<WorldModelModule> module = MakeModule(model, *observation, *action);
  struct Kind {
    const char* name;
    int64_t columns;
    Normalisation* to;
  };
  for (const Kind& kind :
       {Kind{"observation", *observation, &module->observation},
        Kind{"action", *action, &module->action}, Kind{"change", *observation, &module->change},
        Kind{"reward", 1, &module->reward}}) {
    const auto statistics = fields.Statistics(kind.name, kind.columns);
    if (!statistics.ok()) return statistics.status();
    *kind.to = module->AddStatistics(kind.name, statistics->mean, statistics->deviation);
  }
  const auto next = fields.Statistics("next_observation", *observation);
  if (!next.ok()) return next.status();
  return std::unique_ptr<Model>(new LatentWorldModel(module, torch::tensor(next->mean), steps));
}

absl::StatusOr<std::unique_ptr<LatentWorldModel>> LatentWorldModel::BuildFor(
    const training::v1::WorldModelSpec& spec, const NamedTensors& weights) {
  const auto columns = [&weights](const std::string& name) -> int64_t {
    for (const auto& [known, tensor] : weights) {
      if (known == name && tensor.dim() == 1) return tensor.size(0);
    }
    return 0;
  };
  const int64_t observation = columns("observation_mean");
  const int64_t action = columns("action_mean");
  if (observation < 1 || action < 1) {
    return absl::InvalidArgumentError(
        "the weights lack observation_mean [O] or action_mean [A]; accepted: those of a job with "
        "model.world_model");
  }
  const std::shared_ptr<WorldModelModule> module = MakeModule(spec, observation, action);
  const auto add = [&module](const char* name, int64_t size) {
    const std::vector<float> none(static_cast<size_t>(size), 1);
    return module->AddStatistics(name, none, none);
  };
  module->observation = add("observation", observation);
  module->action = add("action", action);
  module->change = add("change", observation);
  module->reward = add("reward", 1);
  return std::unique_ptr<LatentWorldModel>(
      new LatentWorldModel(module, torch::zeros(observation), spec.rollout_steps()));
}

LatentWorldModel::LatentWorldModel(std::shared_ptr<WorldModelModule> module,
                                   torch::Tensor next_observation_mean, int64_t rollout_steps)
    : ModuleModel(module),
      module_(std::move(module)),
      rollout_steps_(rollout_steps),
      next_observation_mean_(std::move(next_observation_mean)) {}

void LatentWorldModel::To(torch::Device device) {
  ModuleModel::To(device);
  next_observation_mean_ = next_observation_mean_.to(device);
}

std::vector<Heads> LatentWorldModel::Predict(const torch::Tensor& observation,
                                             const torch::Tensor& action) {
  const torch::Tensor input = module_->observation.Apply(observation).to(format());
  const torch::Tensor actions = module_->action.Apply(action);
  std::vector<Heads> heads;
  for (const auto& member : module_->members) {
    torch::Tensor latent = member->Encode(input);
    if (actions.dim() == 2) {
      latent = member->Advance(latent, actions);
    } else {
      std::vector<torch::Tensor> steps;
      for (const torch::Tensor& step : actions.unbind(1)) {
        latent = member->Advance(latent, step);
        steps.push_back(latent);
      }
      latent = torch::stack(steps, 1);
    }
    heads.push_back({.change = member->change_head_->forward(latent),
                     .reward = member->reward_head_->forward(latent),
                     .done = member->done_head_->forward(latent)});
  }
  return heads;
}

Heads LatentWorldModel::Targets(const Batch& batch) const {
  return {.change = module_->change.Apply(batch.at("change")),
          .reward = module_->reward.Apply(batch.at("reward")),
          .done = batch.at("done")};
}

Forecast LatentWorldModel::ToUnits(const torch::Tensor& observation,
                                   const std::vector<Heads>& members) const {
  const auto mean = [&members](torch::Tensor Heads::*head) {
    std::vector<torch::Tensor> all;
    for (const Heads& heads : members) all.push_back((heads.*head).to(torch::kFloat));
    return MeanOverMembers(all);
  };
  const torch::Tensor change =
      mean(&Heads::change) * module_->change.deviation + module_->change.mean;
  return {.next_observation = change.dim() == 2 ? observation + change
                                                : observation.unsqueeze(1) + change.cumsum(1),
          .reward = mean(&Heads::reward) * module_->reward.deviation + module_->reward.mean,
          .done_logit = mean(&Heads::done)};
}

Forecast LatentWorldModel::forward(const torch::Tensor& observation, const torch::Tensor& action) {
  return ToUnits(observation, Predict(observation, action));
}

namespace {

// Returns the observation that is encoded.
torch::Tensor FirstObservation(const Batch& batch) {
  const torch::Tensor& observation = batch.at("observation");
  return observation.dim() == 3 ? observation.select(1, 0) : observation;
}

}  // namespace

torch::Tensor LatentWorldModel::Loss(const Batch& batch,
                                     std::optional<torch::ScalarType> autocast) {
  std::vector<Heads> heads;
  {
    const AutocastGuard guard(batch.at("observation").device().type(), autocast);
    heads = Predict(FirstObservation(batch), batch.at("action"));
  }
  const Heads targets = Targets(batch);
  last_predictions_.clear();
  for (const Heads& member : heads) last_predictions_.push_back(Detached(member));
  last_targets_ = targets;
  if (const auto weights = Weights(batch)) return (LossOfEach(heads, targets) * *weights).mean();
  return BatchLoss(heads, targets);
}

torch::Tensor LatentWorldModel::ExampleLosses() const {
  if (last_predictions_.empty()) return {};
  const torch::NoGradGuard no_grad;
  return LossOfEach(last_predictions_, last_targets_);
}

std::vector<MetricSum> LatentWorldModel::Evaluate(const Batch& batch) {
  const torch::NoGradGuard no_grad;
  const torch::Tensor first = FirstObservation(batch);
  const std::vector<Heads> heads = Predict(first, batch.at("action"));
  const torch::Tensor next = batch.at("observation") + batch.at("change");
  const auto squares = [&](const torch::Tensor& predicted) {
    return ((predicted - next) / module_->observation.deviation).to(torch::kDouble).square();
  };
  return {SumOf("loss", LossOfEach(heads, Targets(batch))),
          SumOf("observation_error", squares(ToUnits(first, heads).next_observation)),
          SumOf("persistence_error", squares(next.dim() == 3 ? first.unsqueeze(1) : first)),
          SumOf("mean_error", squares(next_observation_mean_))};
}

int64_t LatentWorldModel::OperationsPerExample() const {
  int64_t encoder = 0;
  int64_t others = 0;
  for (const auto& member : module_->members) {
    for (const torch::Tensor& weight : member->parameters()) others += weight.numel();
    for (const torch::Tensor& weight : member->encoder_->parameters()) encoder += weight.numel();
  }
  others -= encoder;
  // A multiplication and an addition per weight, once forward and twice backward.
  return 6 * (encoder + rollout_steps_ * others);
}

}  // namespace genesis
