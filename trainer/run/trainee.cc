#include "trainer/run/trainee.h"

#include <map>
#include <sstream>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"

namespace genesis {
namespace {

using training::v1::JobSpec;
using training::v1::PrecisionMode;

// In an OptimizerSpec 0 means "the default", so that -1 asks for 0.
double MinusOneIsZero(double value) { return value == -1 ? 0.0 : value; }

AdamWOptions OptimizerOptions(const JobSpec& spec) {
  return {.learning_rate = spec.optimizer().learning_rate(),
          .beta1 = MinusOneIsZero(spec.optimizer().beta1()),
          .beta2 = MinusOneIsZero(spec.optimizer().beta2()),
          .epsilon = spec.optimizer().epsilon(),
          .weight_decay = MinusOneIsZero(spec.optimizer().weight_decay())};
}

// The defaults stand in where a daemon gave a mode that the job did not name.
GradScalerOptions ScalerOptions(const JobSpec& spec) {
  GradScalerOptions options;
  const training::v1::PrecisionSpec& given = spec.precision();
  if (given.loss_scale() > 0) options.initial_scale = given.loss_scale();
  if (given.growth_factor() > 0) options.growth_factor = given.growth_factor();
  if (given.backoff_factor() > 0) options.backoff_factor = given.backoff_factor();
  if (given.growth_interval() > 0) options.growth_interval = given.growth_interval();
  return options;
}

TrainStepOptions StepOptions(const JobSpec& spec, PrecisionMode mode) {
  TrainStepOptions options;
  options.gradient_accumulation_steps = spec.training().gradient_accumulation_steps();
  if (spec.training().max_grad_norm() > 0) options.max_grad_norm = spec.training().max_grad_norm();
  if (mode == training::v1::PRECISION_MODE_MIXED_BF16) options.autocast = at::kBFloat16;
  if (mode == training::v1::PRECISION_MODE_MIXED_FP16) options.autocast = at::kHalf;
  return options;
}

WorldModel BuildModel(const JobSpec& spec, const TrajectoryDataset& dataset, at::Device device) {
  const training::v1::WorldModelSpec& model = spec.model().world_model();
  // Drawn on the CPU, so that every device starts from the same weights.
  WorldModel built(dataset, model.hidden_size(), model.latent_size(), spec.training().seed());
  built->to(device);
  return built;
}

std::optional<GradScaler> BuildScaler(const JobSpec& spec, PrecisionMode mode, at::Device device) {
  if (mode != training::v1::PRECISION_MODE_MIXED_FP16) return std::nullopt;
  return GradScaler(ScalerOptions(spec), device);
}

// Parameters, then buffers, by name; shares memory with the model.
std::vector<std::pair<std::string, at::Tensor>> NamedTensors(const WorldModel& model) {
  std::vector<std::pair<std::string, at::Tensor>> tensors;
  for (const auto& entry : model->named_parameters()) {
    tensors.emplace_back(entry.key(), entry.value());
  }
  for (const auto& entry : model->named_buffers()) {
    tensors.emplace_back(entry.key(), entry.value());
  }
  return tensors;
}

at::Tensor CopyToCpu(const at::Tensor& tensor) {
  return tensor.detach().to(at::kCPU, /*non_blocking=*/false, /*copy=*/true);
}

std::string Sizes(const at::Tensor& tensor) {
  std::ostringstream text;
  text << tensor.sizes();
  return text.str();
}

}  // namespace

Trainee::Trainee(const training::v1::StartJob& start, const TrajectoryDataset& dataset)
    : device_(start.precision().device()),
      seed_(start.spec().training().seed()),
      model_(BuildModel(start.spec(), dataset, device_)),
      source_(dataset, start.spec().training().batch_size(), seed_, device_),
      optimizer_(model_->parameters(), OptimizerOptions(start.spec())),
      scaler_(BuildScaler(start.spec(), start.precision().mode(), device_)),
      step_(model_, source_, optimizer_, scaler_ ? &*scaler_ : nullptr,
            StepOptions(start.spec(), start.precision().mode())) {}

int64_t Trainee::OperationsPerPass() const {
  int64_t weights = 0;
  for (const torch::Tensor& parameter : model_->parameters()) weights += parameter.numel();
  // A multiplication and an addition per weight: once forward, twice backward.
  return 6 * weights * source_.batch_size();
}

TrainingState Trainee::TakeState(RunPosition position) const {
  position.sampler = source_.position();
  position.seed = seed_;
  TrainingState state;
  for (const auto& [name, tensor] : NamedTensors(model_)) {
    state.model.emplace_back(name, CopyToCpu(tensor));
  }
  for (const AdamWParameterState& entry : optimizer_.state()) {
    state.optimizer.push_back({.step = CopyToCpu(entry.step),
                               .exp_avg = CopyToCpu(entry.exp_avg),
                               .exp_avg_sq = CopyToCpu(entry.exp_avg_sq)});
  }
  state.optimizer_options = optimizer_.options();
  if (scaler_) state.scaler = scaler_->state();
  state.rng_state = at::detail::getDefaultCPUGenerator().get_state();
  state.position = position;
  return state;
}

absl::Status Trainee::CheckFits(const TrainingState& state) const {
  const std::map<std::string, at::Tensor> saved(state.model.begin(), state.model.end());
  const auto own = NamedTensors(model_);
  for (const auto& [name, tensor] : own) {
    const auto found = saved.find(name);
    if (found == saved.end()) {
      return absl::InvalidArgumentError(absl::StrCat("has no ", name, "; the job's model has one"));
    }
    if (found->second.sizes() != tensor.sizes()) {
      return absl::InvalidArgumentError(absl::StrCat(name, " has shape ", Sizes(found->second),
                                                     "; the job's model needs ", Sizes(tensor)));
    }
  }
  if (saved.size() != own.size()) {
    return absl::InvalidArgumentError(
        absl::StrCat("has ", saved.size(), " tensors of a model; the job's has ", own.size()));
  }
  const std::vector<at::Tensor>& parameters = optimizer_.parameters();
  bool fits = state.optimizer.size() == parameters.size();
  for (size_t i = 0; fits && i < parameters.size(); ++i) {
    const AdamWParameterState& entry = state.optimizer[i];
    fits = entry.step.dim() == 0 && entry.exp_avg.sizes() == parameters[i].sizes() &&
           entry.exp_avg_sq.sizes() == parameters[i].sizes();
  }
  if (!fits) return absl::InvalidArgumentError("has an optimizer state of other parameters");
  const SamplerPosition& sampler = state.position.sampler;
  if (state.position.step < 0 || sampler.epoch < 0 || sampler.batch < 0) {
    return absl::InvalidArgumentError("has a negative position");
  }
  return absl::OkStatus();
}

absl::Status Trainee::PutState(const TrainingState& state) {
  if (absl::Status status = CheckFits(state); !status.ok()) return status;
  const torch::NoGradGuard no_grad;
  const std::map<std::string, at::Tensor> saved(state.model.begin(), state.model.end());
  for (auto& [name, tensor] : NamedTensors(model_)) tensor.copy_(saved.at(name));
  optimizer_.LoadState(state.optimizer);
  // A run that changed to a mode with a loss scale begins with the scale of the job.
  if (scaler_ && state.scaler) scaler_->LoadState(*state.scaler);
  if (state.rng_state.defined() && state.rng_state.scalar_type() == at::kByte) {
    at::Generator generator = at::detail::getDefaultCPUGenerator();
    generator.set_state(state.rng_state);
  }
  SamplerPosition sampler = state.position.sampler;
  // The place is of another dataset or batch size: begin the next pass.
  if (sampler.batch >= source_.batches_per_epoch()) sampler = {sampler.epoch + 1, 0};
  source_.Seek(sampler);
  return absl::OkStatus();
}

}  // namespace genesis
