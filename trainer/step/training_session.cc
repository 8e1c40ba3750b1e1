#include "trainer/step/training_session.h"
#include "trainer/models/build_model.h"

#include <algorithm>
#include <map>
#include <sstream>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "base/text/enum_names.h"
#include "trainer/distributed/weight_check.h"
#include "trainer/runtime/run_failure.h"
#include "trainer/step/initial_weights.h"

namespace genesis {
namespace {

using training::v1::JobSpec;
using training::v1::PrecisionMode;
using training::v1::Progress;

// Ends the error of a checkpoint whose weights could be used.
constexpr absl::string_view kWeightsAlone = "; start_from_checkpoint takes the weights alone";

// Defaults apply if the daemon chose a mode that the job did not name.
GradScalerOptions ScalerOptions(const training::v1::PrecisionSpec& given) {
  GradScalerOptions options;
  if (given.loss_scale() > 0) options.initial_scale = given.loss_scale();
  if (given.growth_factor() > 0) options.growth_factor = given.growth_factor();
  if (given.backoff_factor() > 0) options.backoff_factor = given.backoff_factor();
  if (given.growth_interval() > 0) options.growth_interval = given.growth_interval();
  options.min_scale = given.min_loss_scale();
  options.max_scale = given.max_loss_scale();
  if (given.hysteresis() > 0) options.hysteresis = given.hysteresis();
  return options;
}

TrainStepOptions StepOptions(const training::v1::TrainingSpec& training, StepGraphMaker graphs) {
  TrainStepOptions options;
  options.seed = training.seed();
  options.graphs = std::move(graphs);
  options.gradient_accumulation_steps = training.gradient_accumulation_steps();
  return options;
}

int64_t TotalSteps(const training::v1::TrainingSpec& training, int64_t batches_per_epoch) {
  if (training.max_steps() > 0) return training.max_steps();
  const int64_t batches = training.epochs() * batches_per_epoch;
  return std::max<int64_t>(1, batches / training.gradient_accumulation_steps());
}

std::string Sizes(const at::Tensor& tensor) {
  std::ostringstream text;
  text << tensor.sizes();
  return text.str();
}

// Buffers of a user's module may be in a reduced format; checkpoints are in float32.
at::ScalarType TypeInCheckpoint(const at::Tensor& tensor) {
  const bool wide = !tensor.is_floating_point() || tensor.scalar_type() == at::kDouble;
  return wide ? tensor.scalar_type() : at::kFloat;
}

std::string TypeName(at::ScalarType type) { return c10::getDtypeNames(type).first; }

std::unique_ptr<Model> Build(const JobSpec& spec, const Dataset& dataset, at::Device device) {
  absl::StatusOr<std::unique_ptr<Model>> model = BuildModel(spec, dataset);
  Require(model.status(),
          absl::IsResourceExhausted(model.status()) ? training::v1::FAILURE_CAUSE_OUT_OF_MEMORY
          : absl::IsOutOfRange(model.status())      ? training::v1::FAILURE_CAUSE_DATA
                                                    : training::v1::FAILURE_CAUSE_CONFIG);
  if (!spec.model().initial_weights().empty()) {
    Require(LoadInitialWeights(spec.model().initial_weights(), **model),
            training::v1::FAILURE_CAUSE_CONFIG);
  }
  (*model)->To(device);
  return *std::move(model);
}

ParameterGroups Groups(const JobSpec& spec, const Model& model) {
  absl::StatusOr<ParameterGroups> groups = GroupParameters(spec, model.parameters());
  Require(groups.status(), training::v1::FAILURE_CAUSE_CONFIG);
  return *std::move(groups);
}

// Returns whether the ranks may shard the optimizer and share one copy of the weights. By default
// they may not if the job compares their copies.
bool MayShard(const training::v1::DistributedSpec& spec) {
  return spec.has_shard_optimizer_state() ? spec.shard_optimizer_state()
                                          : spec.weight_check_every_steps() == 0;
}

std::unique_ptr<GradientReducer> ReducerOf(RankGroup& ranks, const JobSpec& spec,
                                           const std::vector<at::Tensor>& masters) {
  if (ranks.alone()) return nullptr;
  const size_t common = MayShard(spec.distributed()) ? OptimizerShards::CommonBytes(masters) : 0;
  return std::make_unique<GradientReducer>(ranks, masters, spec.distributed(), common);
}

std::unique_ptr<OptimizerShards> ShardsOf(RankGroup& ranks, const JobSpec& spec,
                                          GradientReducer* reducer,
                                          const std::vector<at::Tensor>& masters) {
  if (ranks.alone() || !MayShard(spec.distributed())) return nullptr;
  auto shards = std::make_unique<OptimizerShards>(ranks, *reducer, masters);
  // Sharding is free if common memory holds one copy. Otherwise weights have to be sent.
  if (!shards->together() && !spec.distributed().shard_optimizer_state()) return nullptr;
  return shards;
}

OptimizerShare ShareOf(const RankGroup& ranks, OptimizerShards* shards) {
  OptimizerShare share;
  if (shards == nullptr) return share;
  share.owned = shards->owned();
  if (shards->together()) {
    share.part = ranks.rank();
    share.parts = ranks.size();
    share.zeros = [shards](const at::Tensor& master) { return shards->Zeros(master); };
  }
  return share;
}

std::vector<at::Tensor> Tensors(const NamedTensors& named) {
  std::vector<at::Tensor> tensors;
  for (const auto& [name, tensor] : named) tensors.push_back(tensor);
  return tensors;
}

}  // namespace

TrainingSession::TrainingSession(const training::v1::StartJob& start, const Dataset& dataset,
                                 at::Device device, RankGroup& ranks, StepGraphMaker graphs)
    : device_(device),
      ranks_(ranks),
      captures_(graphs != nullptr),
      spec_(start.spec()),
      model_(Build(spec_, dataset, device_)),
      source_(std::make_unique<BatchSource>(
          dataset, spec_, device_, BatchShare{.index = ranks.rank(), .count = ranks.size()})),
      compiled_(start.compiled_dir(), spec_, *model_, dataset),
      total_steps_(TotalSteps(spec_.training(), source_->batches_per_epoch())),
      schedule_(spec_.optimizer(), total_steps_),
      faults_(spec_),
      weights_(std::make_unique<MasterWeights>(Tensors(model_->parameters()))),
      groups_(Groups(spec_, *model_)),
      clipping_(groups_, device_),
      reducer_(ReducerOf(ranks, spec_, weights_->masters())),
      shards_(ShardsOf(ranks, spec_, reducer_.get(), weights_->masters())),
      optimizer_(std::make_unique<Optimizer>(weights_->masters(), spec_.optimizer(),
                                             groups_.optimizer, ShareOf(ranks, shards_.get()))) {
  for (const auto& [name, tensor] : model_->buffers()) {
    if (at::isinf(tensor).any().item<bool>()) with_infinities_.insert(name);
  }
  const double decay = spec_.training().ema_decay();
  if (decay > 0) average_.emplace(weights_->masters(), decay);
  step_ = std::make_unique<TrainStep>(Parts(), StepOptions(spec_.training(), std::move(graphs)));
}

std::string TrainingSession::exchange() const {
  if (!reducer_) return "";
  if (!shards_) return reducer_->description();
  if (!shards_->together()) return reducer_->description() + "; optimizer in shards";
  return absl::StrCat(reducer_->description(), "; one copy of weights and optimizer",
                      spec_.distributed().weight_check_every_steps() > 0
                          ? ", so that weight_check_every_steps has nothing to compare"
                          : "");
}

StepParts TrainingSession::Parts() {
  return {.model = *model_,
          .source = *source_,
          .weights = *weights_,
          .optimizer = *optimizer_,
          .clipping = clipping_,
          .average = average_ ? &*average_ : nullptr,
          .schedule = schedule_,
          .faults = faults_,
          .ranks = ranks_,
          .reducer = reducer_.get(),
          .shards = shards_.get()};
}

int64_t TrainingSession::OperationsPerPass() const {
  return model_->OperationsPerExample() * source_->batch_size();
}

void TrainingSession::SetMode(PrecisionMode mode, bool keep_scale) {
  mode_ = mode;
  const StepFormat format = FormatOf(mode);
  if (format.weights != weights_->format()) weights_->SetFormat(format.weights);
  if (format.scaled && !(scaler_ && keep_scale)) {
    scaler_.emplace(ScalerOptions(spec_.precision()), device_);
  }
  step_->SetFormat(format, format.scaled ? &*scaler_ : nullptr, compiled_.For(mode).step.get());
}

std::string TrainingSession::execution() {
  const CompiledSteps::Choice& compiled = compiled_.For(mode_);
  if (compiled.step != nullptr) return compiled.text;
  if (model_->has_joint_graph()) return absl::StrCat("exported graph, because ", compiled.text);
  const std::string& reason = captures_ ? step_->eager_because() : compiled.text;
  return reason.empty() ? "captured after the first steps, then replayed"
                        : absl::StrCat("eager, because ", reason);
}

void TrainingSession::FollowFirstRank() {
  step_->AwaitCopy();
  ranks_.CopyFromFirst(weights_->masters());
  ranks_.CopyFromFirst(Tensors(model_->buffers()));
  const torch::NoGradGuard no_grad;
  weights_->Publish();
}

void TrainingSession::CheckWeights(int64_t step) {
  const int64_t every = spec_.distributed().weight_check_every_steps();
  if (ranks_.alone() || every == 0 || step % every != 0) return;
  if (shards_ && shards_->together()) return;
  NamedTensors weights = model_->parameters();
  for (size_t i = 0; i < weights.size(); ++i) weights[i].second = weights_->masters()[i];
  RequireSameWeights(ranks_, step, weights);
}

// On return rank 0 has the whole state, because it writes checkpoints. Other ranks have their own
// part, because they load only that.
void TrainingSession::GatherOptimizer(OptimizerState& state) {
  for (size_t i = 0; ranks_.first() && i < state.parameters.size(); ++i) {
    if (!shards_->owns(i)) state.parameters[i] = optimizer_->NewEntry(i);
  }
  shards_->GatherOnFirst(state.parameters);
}

NamedTensors TrainingSession::CurrentWeights(bool average) const {
  NamedTensors weights = model_->parameters();
  for (size_t i = 0; i < weights.size(); ++i) {
    weights[i].second = average ? average_->average()[i] : weights_->masters()[i];
  }
  const std::vector<std::string> changed = model_->changed_buffers();
  for (const auto& [name, tensor] : model_->buffers()) {
    // The next forward pass changes the buffer, so copy it immediately.
    const bool changes = std::find(changed.begin(), changed.end(), name) != changed.end();
    weights.emplace_back(name, tensor.detach().to(tensor.device(), TypeInCheckpoint(tensor),
                                                  /*non_blocking=*/false, /*copy=*/changes));
  }
  const std::map<std::string, at::Tensor> by_name(weights.begin(), weights.end());
  for (const auto& [name, of] : model_->tied()) weights.emplace_back(name, by_name.at(of));
  return weights;
}

TrainingState TrainingSession::TakeState(RunPosition position) {
  TrainingState state = BeginState(std::move(position));
  state.Complete();
  return state;
}

TrainingState TrainingSession::BeginState(RunPosition position) {
  position.sampler = source_->position();
  position.seed = spec_.training().seed();
  position.progress.set_mode(mode_);
  position.applied_steps = step_->applied();
  position.rate_reductions = step_->rate_reductions();
  position.batch_examples = source_->batch_examples();
  step_->AwaitCopy();
  if (reducer_) reducer_->DropResiduals();
  TrainingState state;
  const auto copy = std::make_shared<StateCopy>();
  const NamedTensors parameters = model_->parameters();
  for (size_t i = 0; i < parameters.size(); ++i) {
    state.model.emplace_back(parameters[i].first, copy->Add(weights_->masters()[i]));
    if (average_) {
      state.ema.emplace_back(parameters[i].first, copy->Add(average_->average()[i]));
    }
  }
  for (const auto& [name, tensor] : model_->buffers()) {
    // Copy immediately because a forward pass may change buffers.
    state.model.emplace_back(name, tensor.detach().to(at::kCPU, TypeInCheckpoint(tensor),
                                                      /*non_blocking=*/false, /*copy=*/true));
  }
  state.with_infinities = with_infinities_;
  state.attributes = model_->attributes();
  state.tied = model_->tied();
  state.versions = model_->versions();
  state.optimizer = optimizer_->state(schedule_.Factor(step_->applied(), step_->rate_reductions()));
  if (shards_ && !spec_.checkpoint().sharded()) GatherOptimizer(state.optimizer);
  for (auto& entry : state.optimizer.parameters) {
    for (auto& [name, tensor] : entry) tensor = copy->Add(tensor);
  }
  if (scaler_) state.scaler = scaler_->state();
  state.rng_state = at::detail::getDefaultCPUGenerator().get_state();
  if (device_.is_cuda()) {
    state.device_rng_state = at::globalContext().defaultGenerator(device_).get_state();
  }
  state.priorities = source_->priorities();
  state.position = std::move(position);
  copy->Start();
  step_->WaitFor([copy] { copy->HoldUpdate(); });
  state.copy = copy;
  return state;
}

double TrainingSession::LowerRate() {
  step_->SetRateReductions(step_->rate_reductions() + 1);
  return schedule_.LearningRate(step_->applied(), step_->rate_reductions());
}

absl::Status TrainingSession::CheckFits(const TrainingState& state) const {
  const std::map<std::string, at::Tensor> saved(state.model.begin(), state.model.end());
  NamedTensors own = model_->parameters();
  const size_t parameters = own.size();
  for (auto& buffer : model_->buffers()) own.push_back(std::move(buffer));
  for (const auto& [name, tensor] : own) {
    const auto found = saved.find(name);
    if (found == saved.end()) {
      return absl::InvalidArgumentError(
          absl::StrCat("it has no ", name, "; the job's model has one"));
    }
    if (found->second.sizes() != tensor.sizes()) {
      return absl::InvalidArgumentError(absl::StrCat("its ", name, " has shape ",
                                                     Sizes(found->second),
                                                     "; the job's model needs ", Sizes(tensor)));
    }
    if (found->second.scalar_type() != TypeInCheckpoint(tensor)) {
      return absl::InvalidArgumentError(
          absl::StrCat("its ", name, " is of ", TypeName(found->second.scalar_type()),
                       "; the job's model needs ", TypeName(TypeInCheckpoint(tensor))));
    }
  }
  if (saved.size() != own.size()) {
    return absl::InvalidArgumentError(absl::StrCat(
        "it has ", saved.size(), " tensors of a model; the job's model has ", own.size()));
  }
  if (state.optimizer.kind != spec_.optimizer().kind()) {
    return absl::InvalidArgumentError(
        absl::StrCat("it was made with ", ShortEnumName(state.optimizer.kind), "; the job has ",
                     ShortEnumName(spec_.optimizer().kind()), kWeightsAlone));
  }
  const OptimizerState optimizer = optimizer_->state();
  if (state.optimizer.parameters.size() != parameters) {
    return absl::InvalidArgumentError(
        absl::StrCat("it has optimizer state of ", state.optimizer.parameters.size(),
                     " parameters; the job's model has ", parameters, kWeightsAlone));
  }
  for (size_t i = 0; i < parameters; ++i) {
    const auto& saved_entry = state.optimizer.parameters[i];
    const auto& own_entry = optimizer.parameters[i];
    if (shards_ && !shards_->owns(i)) continue;
    bool fits = saved_entry.size() == own_entry.size();
    for (size_t j = 0; fits && j < own_entry.size(); ++j) {
      fits = saved_entry[j].first == own_entry[j].first &&
             saved_entry[j].second.sizes() == own_entry[j].second.sizes();
    }
    if (!fits) {
      return absl::InvalidArgumentError(absl::StrCat("its optimizer state of ", own[i].first,
                                                     " differs from the job's in names or shapes",
                                                     kWeightsAlone));
    }
  }
  if (average_ && state.ema.size() != parameters) {
    return absl::InvalidArgumentError(absl::StrCat(
        "it has no average of the weights; the job has training.ema_decay", kWeightsAlone));
  }
  return absl::OkStatus();
}

void TrainingSession::TakePlace(const RunPosition& position) {
  SamplerPosition sampler = position.sampler;
  const int64_t before = position.batch_examples;
  const int64_t now = source_->batch_examples();
  const bool resized = before > 0 && before != now;
  // Keep the number of examples done in this epoch; a partial batch is repeated.
  if (resized) sampler.batch = sampler.batch * before / now;
  // The position belongs to another dataset or batch size, so start the next epoch.
  if (sampler.batch >= source_->batches_per_epoch()) sampler = {sampler.epoch + 1, 0};
  source_->Seek(sampler);
  TakeLength(position, sampler, resized);
  const Progress& progress = position.progress;
  // Steps applied before the job's first one, by the jobs that it continues.
  const int64_t before_job =
      spec_.optimizer().schedule().goes_on()
          ? position.applied_steps - (progress.step() - progress.skipped_steps())
          : 0;
  schedule_ = Schedule(spec_.optimizer(), before_job + total_steps_);
}

void TrainingSession::TakeLength(const RunPosition& position, const SamplerPosition& sampler,
                                 bool resized) {
  if (!resized || spec_.training().max_steps() > 0) return;
  // The remaining epochs, in steps of the new size.
  const int64_t batches =
      (spec_.training().epochs() - sampler.epoch) * source_->batches_per_epoch() - sampler.batch;
  const int64_t left = batches / spec_.training().gradient_accumulation_steps();
  total_steps_ = std::max<int64_t>(1, position.progress.step() + std::max<int64_t>(0, left));
}

absl::Status TrainingSession::PutState(const TrainingState& state, PrecisionMode mode) {
  if (absl::Status status = CheckFits(state); !status.ok()) return status;
  state.Complete();
  step_->AwaitCopy();
  if (shards_) shards_->AwaitReaders();
  if (reducer_) reducer_->DropResiduals();
  const torch::NoGradGuard no_grad;
  const std::map<std::string, at::Tensor> saved(state.model.begin(), state.model.end());
  const NamedTensors parameters = model_->parameters();
  for (size_t i = 0; i < parameters.size(); ++i) {
    weights_->masters()[i].copy_(saved.at(parameters[i].first));
  }
  for (const auto& [name, tensor] : model_->buffers()) tensor.copy_(saved.at(name));
  model_->PutAttributes(state.attributes);
  weights_->Publish();
  optimizer_->LoadState(state.optimizer);
  if (average_) average_->LoadState(Tensors(state.ema));
  SetMode(mode);
  if (state.scaler) {
    // Restored in every mode, because SetMode may keep the scale and checkpoints hold it.
    if (!scaler_) scaler_.emplace(ScalerOptions(spec_.precision()), device_);
    scaler_->LoadState(*state.scaler);
  }
  if (state.rng_state.defined() && state.rng_state.scalar_type() == at::kByte) {
    at::Generator generator = at::detail::getDefaultCPUGenerator();
    generator.set_state(state.rng_state);
  }
  // Restore the state only on the same kind of device.
  at::Tensor device_rng = state.device_rng_state;
  if (device_.is_cuda() && device_rng.defined()) {
    at::Generator generator = at::globalContext().defaultGenerator(device_);
    if (device_rng.sizes() == generator.get_state().sizes()) generator.set_state(device_rng);
  }
  TakePlace(state.position);
  if (source_->prioritized() && state.priorities.defined()) {
    source_->RestorePriorities(state.priorities, state.position.progress.next_transition());
  }
  step_->SetApplied(state.position.applied_steps);
  step_->SetRateReductions(state.position.rate_reductions);
  return absl::OkStatus();
}

}  // namespace genesis
