#include <map>
#include <string>
#include <utility>
#include <vector>

#include "base/text/enum_names.h"
#include "config/precision/precision.h"
#include "trainer/checkpoint/state_layout.h"

namespace genesis {
namespace {

using NamedTensors = std::vector<std::pair<std::string, at::Tensor>>;

ValueDict ToDict(const NamedTensors& tensors) {
  ValueDict dict;
  for (const auto& [name, tensor] : tensors) dict.Add(name, tensor);
  return dict;
}

// Returns `tensors` and then their additional names, because load_state_dict requires them all.
ValueDict ToDict(const NamedTensors& tensors, const TrainingState& state) {
  ValueDict dict = ToDict(tensors);
  const std::map<std::string, at::Tensor> by_name(tensors.begin(), tensors.end());
  for (const auto& [name, of] : state.tied) {
    const auto found = by_name.find(of);
    if (found != by_name.end()) dict.Add(name, found->second);
  }
  return dict;
}

// Returns every key that load_state_dict and the optimizer's next step() read.
ValueDict ToDict(const OptimizerGroup& group, const OptimizerState& optimizer) {
  ValueDict dict;
  dict.Add("lr", group.scheduled_learning_rate);
  dict.Add("initial_lr", group.learning_rate);
  dict.Add("weight_decay", group.weight_decay);
  if (optimizer.kind == training::v1::OPTIMIZER_KIND_SGD) {
    dict.Add("momentum", optimizer.momentum);
    dict.Add("dampening", 0.0);
    dict.Add("nesterov", optimizer.nesterov);
  } else {
    dict.Add("betas", ValueTuple{{optimizer.beta1, optimizer.beta2}});
    dict.Add("eps", optimizer.epsilon);
    dict.Add("amsgrad", false);
    dict.Add("capturable", false);
    dict.Add("decoupled_weight_decay", optimizer.kind != training::v1::OPTIMIZER_KIND_ADAM);
  }
  dict.Add("maximize", false);
  dict.Add("foreach", Value());
  dict.Add("differentiable", false);
  dict.Add("fused", true);
  dict.Add("params", ValueList(group.parameters.begin(), group.parameters.end()));
  return dict;
}

// Returns the weights as load_state_dict accepts them, with the version numbers that it reads.
ValueDict ModelDict(const TrainingState& state) {
  ValueDict dict = ToDict(state.model, state);
  ValueDict metadata;
  for (const auto& [name, version] : state.versions) {
    ValueDict entry;
    entry.Add("version", version);
    metadata.Add(name, std::move(entry));
  }
  if (!metadata.items.empty()) {
    dict.attributes.push_back({std::string("_metadata"), std::move(metadata)});
  }
  return dict;
}

ValueDict ToDict(const OptimizerState& optimizer) {
  ValueDict parameters;
  for (size_t i = 0; i < optimizer.parameters.size(); ++i) {
    // Python's state has no entry for a parameter without state.
    if (optimizer.parameters[i].empty()) continue;
    parameters.Add(static_cast<int64_t>(i), ToDict(optimizer.parameters[i]));
  }
  ValueList groups;
  for (const OptimizerGroup& group : optimizer.groups) groups.push_back(ToDict(group, optimizer));
  ValueDict dict;
  dict.Add("state", std::move(parameters));
  dict.Add("param_groups", std::move(groups));
  return dict;
}

ValueDict ScalerDict(const TrainingState& state) {
  ValueDict dict;
  if (!state.scaler) return dict;
  dict.Add("scale", state.scaler->scale);
  dict.Add("growth_factor", state.scaler->growth_factor);
  dict.Add("backoff_factor", state.scaler->backoff_factor);
  dict.Add("growth_interval", state.scaler->growth_interval);
  dict.Add("_growth_tracker", state.scaler->growth_tracker);
  return dict;
}

Value ScalerBesides(const TrainingState& state) {
  if (!state.scaler) return {};
  ValueDict dict;
  dict.Add("hysteresis_left", state.scaler->hysteresis_left);
  return dict;
}

void AddPosition(const RunPosition& position, ValueDict& dict) {
  const training::v1::Progress& progress = position.progress;
  for (const char* const counter : kProgressCounters) {
    const google::protobuf::FieldDescriptor* const field =
        progress.GetDescriptor()->FindFieldByName(counter);
    const google::protobuf::Reflection& fields = *progress.GetReflection();
    if (field->has_presence() && !fields.HasField(progress, field)) continue;
    dict.Add(counter, fields.GetInt64(progress, field));
  }
  dict.Add("applied_steps", position.applied_steps);
  if (position.rate_reductions > 0) dict.Add("rate_reductions", position.rate_reductions);
  dict.Add("seconds", progress.seconds());
  dict.Add("epoch", position.sampler.epoch);
  dict.Add("batch_in_epoch", position.sampler.batch);
  if (position.batch_examples > 0) dict.Add("batch_examples", position.batch_examples);
  // As text, because a seed is an unsigned 64-bit number.
  dict.Add("seed", std::to_string(position.seed));
  dict.Add("loss", progress.loss());
  dict.Add("mode", ShortEnumName(progress.mode()));
}

ValueDict ToDict(const PolicyState& policy) {
  ValueList left;
  for (const training::v1::PrecisionMode mode : policy.left) left.emplace_back(ShortEnumName(mode));
  ValueDict dict;
  dict.Add("promotions", int64_t{policy.promotions});
  dict.Add("clean_steps", policy.clean_steps);
  dict.Add("left", std::move(left));
  return dict;
}

ValueDict ToDict(const EvaluationState& evaluation) {
  ValueDict dict;
  dict.Add("best_loss", evaluation.best_loss);
  dict.Add("best_step", evaluation.best_step);
  dict.Add("without_improvement", int64_t{evaluation.without_improvement});
  return dict;
}

// Adds the parameters' names and each group's numbers, so that the optimizer's state finds its
// parameters even after Python has numbered or ordered them again.
void AddParameters(const TrainingState& state, ValueDict& dict) {
  ValueList names;
  for (size_t i = 0; i < state.optimizer.parameters.size(); ++i) {
    names.emplace_back(state.model[i].first);
  }
  ValueList groups;
  for (const OptimizerGroup& group : state.optimizer.groups) {
    groups.emplace_back(ValueList(group.parameters.begin(), group.parameters.end()));
  }
  ValueDict tied;
  for (const auto& [name, of] : state.tied) tied.Add(name, of);
  dict.Add("parameters", std::move(names));
  dict.Add("parameter_groups", std::move(groups));
  dict.Add("tied", std::move(tied));
}

ValueDict OwnDict(const TrainingState& state) {
  ValueDict dict;
  dict.Add("format_version", kCheckpointFormat);
  AddPosition(state.position, dict);
  dict.Add("optimizer", ShortEnumName(state.optimizer.kind));
  AddParameters(state, dict);
  dict.Add("scaler", ScalerBesides(state));
  dict.Add("policy", ToDict(state.policy));
  dict.Add("evaluation", ToDict(state.evaluation));
  dict.Add("rng_state", state.rng_state);
  dict.Add("device_rng_state", state.device_rng_state);
  dict.Add("priorities", state.priorities);
  if (!state.attributes.empty()) dict.Add("attributes", ToDict(state.attributes));
  return dict;
}

}  // namespace

Value ToTree(const TrainingState& state) {
  ValueDict root;
  root.Add("model_state_dict", ModelDict(state));
  root.Add("optimizer_state_dict", ToDict(state.optimizer));
  root.Add("scaler_state_dict", ScalerDict(state));
  if (!state.ema.empty()) root.Add("ema_state_dict", ToDict(state.ema, state));
  root.Add("genesis", OwnDict(state));
  return root;
}

}  // namespace genesis
