#include <algorithm>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/text/enum_names.h"
#include "base/text/field_error.h"
#include "trainer/checkpoint/state_layout.h"
#include "trainer/checkpoint/value_reader.h"

namespace genesis {
namespace {

using training::v1::PrecisionMode;

// A reader of one tree. Read returns the first error.
class LayoutReader {
 public:
  LayoutReader(const std::string& file, const Value& root)
      : root_(file, root), own_(root_.At("genesis")) {}

  absl::StatusOr<TrainingState> Read() {
    version_ = own_.At("format_version").Integer();
    if (root_.status().ok() && (version_ < 1 || version_ > kCheckpointFormat)) {
      own_.At("format_version")
          .Fault(absl::StrCat("is ", version_, "; accepted: 1 to ", kCheckpointFormat,
                              "; a newer release of this program wrote the file"));
    }
    if (!root_.status().ok()) return root_.status();
    ReadPosition();
    ReadModel();
    ReadOptimizer();
    ReadScaler();
    if (root_.status().ok() && version_ >= 2) ReadRest();
    if (!root_.status().ok()) return root_.status();
    return std::move(state_);
  }

 private:
  void ReadPosition() {
    RunPosition& position = state_.position;
    training::v1::Progress& progress = position.progress;
    for (const char* const counter : kProgressCounters) {
      const auto* const field = progress.GetDescriptor()->FindFieldByName(counter);
      // Counters that were added to format 2 are optional in the message.
      const bool in_every_file =
          !field->has_presence() && (version_ >= 2 || field->name() != "scale_backoffs");
      if (!in_every_file && !own_.Has(counter)) continue;
      progress.GetReflection()->SetInt64(&progress, field, own_.At(counter).Integer(0));
    }
    // Without the counter, assume the largest possible number of overflows.
    if (!progress.has_overflow_steps()) {
      progress.set_overflow_steps(
          std::min(progress.skipped_steps(), progress.reduced_precision_steps()));
    }
    position.sampler.epoch = own_.At("epoch").Integer(0);
    position.sampler.batch = own_.At("batch_in_epoch").Integer(0);
    if (own_.Has("batch_examples")) {
      position.batch_examples = own_.At("batch_examples").Integer(1);
    }
    const std::string seed = own_.At("seed").Text();
    if (root_.status().ok() && !absl::SimpleAtoi(seed, &position.seed)) {
      own_.At("seed").Fault("is no number from 0 to 2^64 - 1");
    }
    progress.set_loss(own_.At("loss").Number());
    progress.set_mode(Mode(own_.At("mode")));
    position.applied_steps = progress.step() - progress.skipped_steps();
    state_.rng_state = own_.At("rng_state").Tensor(at::kByte);
  }

  PrecisionMode Mode(const ValueReader& entry) {
    const std::string name = entry.Text();
    const auto mode = ParseEnumName<PrecisionMode>(name);
    if (root_.status().ok() && !mode.has_value()) {
      entry.Fault(absl::StrCat("is ", QuoteValue(name),
                               "; accepted: FP32, FP16, BF16, MIXED_FP16, MIXED_BF16"));
    }
    return mode.value_or(training::v1::PRECISION_MODE_FP32);
  }

  void ReadModel() {
    if (version_ >= 2) {
      for (const auto& [name, of] : own_.At("tied").Named()) {
        state_.tied.emplace_back(name, of.Text());
      }
    }
    state_.model = Untied(root_.At("model_state_dict"));
    if (version_ >= 2) OrderModel();
    // Format 1 does not mark which entries are parameters, but all of its entries are floats.
    RequireFloats(root_.At("model_state_dict"), state_.model,
                  version_ < 2 ? state_.model.size() : parameters_);
  }

  void RequireFloats(const ValueReader& dict,
                     const std::vector<std::pair<std::string, at::Tensor>>& tensors,
                     size_t count) const {
    if (!root_.status().ok()) return;
    for (size_t i = 0; i < count; ++i) dict.At(tensors[i].first).Tensor(at::kFloat);
  }

  // Returns the entries except additional names. Buffers of a user's module have any type except
  // reduced precision, which is widened before it is written.
  std::vector<std::pair<std::string, at::Tensor>> Untied(const ValueReader& dict) const {
    std::set<std::string> second;
    for (const auto& [name, of] : state_.tied) second.insert(name);
    std::vector<std::pair<std::string, at::Tensor>> tensors;
    for (const auto& [name, entry] : dict.Named()) {
      if (second.contains(name)) continue;
      const at::Tensor tensor = entry.Tensor();
      const bool reduced = at::isReducedFloatingType(tensor.scalar_type());
      tensors.emplace_back(name, reduced ? entry.Tensor(at::kFloat) : tensor);
    }
    return tensors;
  }

  // Puts parameters first, in the optimizer's order: Python orders a state dict by module.
  void OrderModel() {
    std::map<std::string, size_t> place;
    for (const ValueReader& name : own_.At("parameters").Items()) {
      place.emplace(name.Text(), place.size());
    }
    const auto rank = [&](const auto& entry) {
      const auto found = place.find(entry.first);
      return found != place.end() ? found->second : place.size();
    };
    std::stable_sort(state_.model.begin(), state_.model.end(),
                     [&](const auto& a, const auto& b) { return rank(a) < rank(b); });
    for (size_t i = 0; i < place.size(); ++i) {
      if (i < state_.model.size() && rank(state_.model[i]) == i) continue;
      root_.At("model_state_dict").Fault("lacks a name that genesis.parameters lists");
      return;
    }
    parameters_ = place.size();
  }

  void ReadOptimizer() {
    const ValueReader dict = root_.At("optimizer_state_dict");
    OptimizerState& optimizer = state_.optimizer;
    if (version_ >= 2) ReadKind();
    const std::vector<ValueReader> groups = dict.At("param_groups").Items();
    if (groups.empty()) dict.At("param_groups").Fault("is empty; accepted: one group or more");
    const std::map<int64_t, int64_t> numbers = ReadGroups(groups);
    if (!root_.status().ok()) return;
    ReadOptions(groups.front());
    if (version_ < 2) parameters_ = numbers.size();
    if (numbers.size() != parameters_) {
      return dict.At("param_groups")
          .Fault(absl::StrCat("has ", numbers.size(), " parameters; accepted: ", parameters_));
    }
    optimizer.parameters.resize(parameters_);
    for (const auto& [key, entry] : dict.At("state").Numbered()) {
      const auto found = numbers.find(key);
      if (found == numbers.end()) return entry.Fault("belongs to no parameter of param_groups");
      ReadParameter(entry, static_cast<size_t>(found->second));
    }
    FillUnused();
  }

  void ReadKind() {
    const ValueReader entry = own_.At("optimizer");
    const std::string name = entry.Text();
    const auto kind = ParseEnumName<training::v1::OptimizerKind>(name);
    if (root_.status().ok() && !kind.has_value()) {
      entry.Fault(absl::StrCat("is ", QuoteValue(name), "; accepted: ADAMW, ADAM, SGD"));
    }
    state_.optimizer.kind = kind.value_or(training::v1::OPTIMIZER_KIND_UNSPECIFIED);
  }

  // Fills state_.optimizer.groups. Returns a map from the numbers in the optimizer's state to the
  // parameters. Python renumbers parameters by group when it saves a state dict again.
  std::map<int64_t, int64_t> ReadGroups(const std::vector<ValueReader>& groups) {
    std::vector<ValueReader> own;
    if (version_ >= 2) own = own_.At("parameter_groups").Items();
    std::map<int64_t, int64_t> numbers;
    std::set<int64_t> seen;
    for (size_t g = 0; g < groups.size() && root_.status().ok(); ++g) {
      const std::vector<ValueReader> saved = groups[g].At("params").Items();
      std::vector<ValueReader> wanted = saved;
      if (version_ >= 2) wanted = g < own.size() ? own[g].Items() : std::vector<ValueReader>();
      if (saved.size() != wanted.size()) {
        groups[g].At("params").Fault(absl::StrCat("has ", saved.size(),
                                                  " parameters; accepted: ", wanted.size(),
                                                  ", as in genesis.parameter_groups"));
        break;
      }
      OptimizerGroup& group = state_.optimizer.groups.emplace_back();
      group.scheduled_learning_rate = groups[g].At("lr").Number();
      group.learning_rate = groups[g].Has("initial_lr") ? groups[g].At("initial_lr").Number()
                                                        : group.scheduled_learning_rate;
      group.weight_decay = groups[g].At("weight_decay").Number();
      for (size_t i = 0; i < saved.size() && root_.status().ok(); ++i) {
        const int64_t number = wanted[i].Integer(0);
        group.parameters.push_back(number);
        const size_t parameters = version_ < 2 ? state_.model.size() : parameters_;
        if (number >= static_cast<int64_t>(parameters)) {
          wanted[i].Fault(absl::StrCat("is ", number, "; accepted: a number below ", parameters,
                                       ", that of the parameters"));
        }
        if (!numbers.emplace(saved[i].Integer(0), number).second || !seen.insert(number).second) {
          saved[i].Fault("names a parameter a second time");
        }
      }
    }
    return numbers;
  }

  // Reads the options that all groups share from the first group.
  void ReadOptions(const ValueReader& group) {
    OptimizerState& optimizer = state_.optimizer;
    if (optimizer.kind == training::v1::OPTIMIZER_KIND_SGD) {
      optimizer.momentum = group.At("momentum").Number();
      optimizer.nesterov = group.At("nesterov").Boolean();
      return;
    }
    optimizer.epsilon = group.At("eps").Number();
    const std::vector<ValueReader> betas = group.At("betas").Items();
    if (betas.size() != 2) return group.At("betas").Fault("has not two numbers");
    optimizer.beta1 = betas[0].Number();
    optimizer.beta2 = betas[1].Number();
  }

  void ReadParameter(const ValueReader& entry, size_t number) {
    auto& state = state_.optimizer.parameters[number];
    for (const char* const name : EntryNames()) {
      const ValueReader saved = entry.At(name);
      at::Tensor tensor = saved.Tensor(at::kFloat);
      const bool fits = std::string(name) == "step"
                            ? tensor.numel() == 1
                            : tensor.sizes() == state_.model[number].second.sizes();
      if (root_.status().ok() && !fits) {
        saved.Fault(absl::StrCat("is ", DescribeValue(saved.value()), "; accepted: that of ",
                                 DescribeValue(state_.model[number].second), ", parameter ",
                                 QuoteValue(state_.model[number].first)));
      }
      state.emplace_back(name, std::move(tensor));
    }
  }

  std::vector<const char*> EntryNames() const {
    if (state_.optimizer.kind != training::v1::OPTIMIZER_KIND_SGD) {
      return {"step", "exp_avg", "exp_avg_sq"};
    }
    if (state_.optimizer.momentum == 0) return {};
    return {"momentum_buffer"};
  }

  // Adds zeros for parameters that never had a gradient, because torch keeps no state for them. If
  // no parameter has state, no step was run or SGD has no momentum, and nothing is added.
  void FillUnused() {
    auto& parameters = state_.optimizer.parameters;
    const auto empty = [](const auto& state) { return state.empty(); };
    if (std::all_of(parameters.begin(), parameters.end(), empty)) return;
    for (size_t i = 0; i < parameters.size(); ++i) {
      if (!parameters[i].empty()) continue;
      const at::Tensor& like = state_.model[i].second;
      for (const char* const name : EntryNames()) {
        parameters[i].emplace_back(name, std::string(name) == "step"
                                             ? at::zeros({}, at::kFloat)
                                             : at::zeros(like.sizes(), at::kFloat));
      }
    }
  }

  void ReadScaler() {
    const ValueReader dict = root_.At("scaler_state_dict");
    if (dict.Named().empty()) return;
    GradScalerState& scaler = state_.scaler.emplace();
    scaler.scale = dict.At("scale").Number();
    scaler.growth_factor = dict.At("growth_factor").Number();
    scaler.backoff_factor = dict.At("backoff_factor").Number();
    scaler.growth_interval = dict.At("growth_interval").Integer(1);
    scaler.growth_tracker = dict.At("_growth_tracker").Integer(0);
    if (!(scaler.scale > 0)) dict.At("scale").Fault("is not above 0");
    // The entry is missing if Python added a scaler to a checkpoint that had none.
    if (version_ < 2 || !own_.Has("scaler")) return;
    const ValueReader besides = own_.At("scaler");
    scaler.hysteresis_left = besides.At("hysteresis_left").Integer();
  }

  // Reads the fields that format 1 lacks.
  void ReadRest() {
    RunPosition& position = state_.position;
    position.applied_steps = own_.At("applied_steps").Integer(0);
    if (own_.Has("rate_reductions")) {
      position.rate_reductions = own_.At("rate_reductions").Integer(0);
    }
    position.progress.set_seconds(own_.At("seconds").Number());
    if (root_.Has("ema_state_dict")) {
      state_.ema = Untied(root_.At("ema_state_dict"));
      RequireFloats(root_.At("ema_state_dict"), state_.ema, state_.ema.size());
    }
    const ValueReader policy = own_.At("policy");
    state_.policy.promotions = static_cast<int32_t>(policy.At("promotions").Integer(0));
    state_.policy.clean_steps = policy.At("clean_steps").Integer(0);
    for (const ValueReader& mode : policy.At("left").Items()) {
      state_.policy.left.push_back(Mode(mode));
    }
    const ValueReader evaluation = own_.At("evaluation");
    state_.evaluation.best_loss = evaluation.At("best_loss").Number();
    state_.evaluation.best_step = evaluation.At("best_step").Integer(0);
    state_.evaluation.without_improvement =
        static_cast<int32_t>(evaluation.At("without_improvement").Integer(0));
    state_.device_rng_state = own_.At("device_rng_state").TensorOrNone(at::kByte);
    state_.priorities = own_.At("priorities").TensorOrNone(at::kFloat);
    if (!own_.Has("attributes")) return;
    for (const auto& [name, entry] : own_.At("attributes").Named()) {
      state_.attributes.emplace_back(name, entry.Tensor());
    }
  }

  const ValueReader root_;
  const ValueReader own_;
  int64_t version_ = 0;
  size_t parameters_ = 0;
  TrainingState state_;
};

}  // namespace

absl::StatusOr<TrainingState> FromTree(const std::string& file, const Value& root) {
  return LayoutReader(file, root).Read();
}

}  // namespace genesis
