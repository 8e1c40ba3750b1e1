#include "trainer/models/scripted_model.h"

#include <algorithm>
#include <bit>
#include <map>
#include <numeric>
#include <stdexcept>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "trainer/models/bad_example.h"
#include "trainer/models/dataset_fields.h"
#include "trainer/models/kept_state.h"
#include "trainer/models/module_faults.h"
#include "trainer/models/module_model.h"
#include "trainer/models/sample_batch.h"
#include "trainer/models/scripted_evaluation.h"
#include "trainer/models/scripted_module.h"
#include "trainer/precision/autocast_guard.h"
#include "trainer/precision/format.h"

namespace genesis {
namespace {

namespace F = torch::nn::functional;
using training::v1::TorchScriptSpec;

// Batch norm wants more than one.
constexpr int64_t kTriedExamples = 2;
constexpr size_t kMaxChoices = 6;
// As ignore_index of torch.nn.functional.cross_entropy.
constexpr int64_t kIgnored = -100;

std::string Describe(const torch::Tensor& tensor) {
  return absl::StrCat(SizesText(tensor.sizes().vec()), " ", torch::toString(tensor.scalar_type()));
}

}  // namespace

absl::StatusOr<std::unique_ptr<Model>> ScriptedModel::Build(const training::v1::JobSpec& spec,
                                                            const Dataset& dataset) {
  const TorchScriptSpec& model = spec.model().torchscript();
  const DatasetFields fields(spec, dataset, "model.torchscript");
  const bool own_loss = model.loss() == training::v1::SCRIPTED_LOSS_MODULE;
  std::vector<std::string> wanted = ForwardInputs(model, dataset);
  const size_t inputs = wanted.size();
  if (!own_loss) wanted.push_back(model.target());
  for (size_t i = 0; i < wanted.size(); ++i) {
    if (FindField(dataset, wanted[i]) != nullptr) continue;
    return absl::InvalidArgumentError(absl::StrCat(
        i < inputs ? absl::StrCat("model.torchscript.inputs[", i, "]") : "model.torchscript.target",
        " is \"", wanted[i], "\"; ", fields.WhatThereIs()));
  }
  if (own_loss && FindField(dataset, "weight") != nullptr) {
    return absl::InvalidArgumentError(
        "model.torchscript.loss is MODULE, but the dataset weighs the loss of each example; give "
        "MSE, CROSS_ENTROPY or HUBER");
  }
  wanted.resize(inputs);

  absl::StatusOr<torch::jit::Module> module = LoadScriptedModule(model.path());
  if (!module.ok()) return module.status();
  if (absl::Status status = CheckForward(*module, model.path(), wanted); !status.ok()) {
    return status;
  }
  std::unique_ptr<ScriptedModel> built(
      new ScriptedModel(*std::move(module), model, wanted, DataPath(spec)));
  if (absl::Status status = built->Try(dataset, spec.training().batch_size()); !status.ok()) {
    return status;
  }
  // For modules that draw numbers while they are trained.
  torch::manual_seed(spec.training().seed());
  return built;
}

ScriptedModel::ScriptedModel(torch::jit::Module module, TorchScriptSpec spec,
                             std::vector<std::string> inputs, std::string data_path)
    : module_(std::move(module)),
      spec_(std::move(spec)),
      inputs_(std::move(inputs)),
      data_path_(std::move(data_path)),
      first_attributes_(ModuleAttributes(module_)) {
  const auto all = module_.named_parameters();
  for (const auto& entry : all) {
    if (!entry.value.requires_grad()) {
      frozen_.emplace_back(entry.name, FrozenParameter(entry.value));
      continue;
    }
    const auto same = std::find_if(parameters_.begin(), parameters_.end(), [&](const auto& other) {
      return other.second.is_same(entry.value);
    });
    if (same == parameters_.end()) {
      parameters_.emplace_back(entry.name, entry.value);
    } else {
      tied_.emplace_back(entry.name, same->first);
    }
  }
}

absl::Status ScriptedModel::CheckCompilable(training::v1::PrecisionMode mode) const {
  if (FormatOf(mode).weights == at::kFloat) return absl::OkStatus();
  if (!buffers().empty()) {
    return absl::UnimplementedError(
        "in pure FP16 and BF16 the buffers of a torchscript model change their format");
  }
  if (spec_.loss() == training::v1::SCRIPTED_LOSS_MODULE) {
    return absl::UnimplementedError(
        "in pure FP16 and BF16 a torchscript model with loss MODULE takes some fields in float32");
  }
  return absl::OkStatus();
}

NamedTensors ScriptedModel::buffers() const {
  NamedTensors buffers;
  for (const auto& [name, frozen] : frozen_) buffers.emplace_back(name, frozen.exact());
  // Asked for anew each time, for a module may put another tensor in a buffer's place.
  const auto all = module_.named_buffers();
  for (const auto& entry : all) buffers.emplace_back(entry.name, entry.value);
  return buffers;
}

std::unique_ptr<ModelState> ScriptedModel::CopyState() const {
  return std::make_unique<ModuleState>(module_, Moving());
}

NamedTensors ScriptedModel::attributes() const {
  NamedTensors changed;
  for (auto& [name, tensor] : ModuleAttributes(module_)) {
    const auto before =
        std::find_if(first_attributes_.begin(), first_attributes_.end(),
                     [&name = name](const auto& entry) { return entry.first == name; });
    const bool same = before != first_attributes_.end() &&
                      before->second.scalar_type() == tensor.scalar_type() &&
                      torch::equal(before->second, tensor);
    if (!same) changed.emplace_back(name, tensor);
  }
  return changed;
}

void ScriptedModel::PutAttributes(const NamedTensors& attributes) {
  std::map<std::string, torch::Tensor> all(first_attributes_.begin(), first_attributes_.end());
  for (const auto& [name, tensor] : attributes) all[name] = tensor;
  PutModuleAttributes(module_, {all.begin(), all.end()}, device());
}

void ScriptedModel::To(torch::Device device) {
  FollowFormat(torch::kFloat);
  module_.to(device);
  for (auto& [name, frozen] : frozen_) frozen.Moved();
}

std::vector<torch::Tensor> ScriptedModel::Moving() const {
  std::vector<torch::Tensor> moving;
  for (const auto& [name, frozen] : frozen_) {
    if (frozen.moves()) moving.push_back(frozen.exact());
  }
  return moving;
}

void ScriptedModel::FollowFormat(torch::ScalarType format) {
  const torch::NoGradGuard no_grad;
  for (auto& [name, frozen] : frozen_) frozen.Follow(format);
  const auto all = module_.named_buffers();
  for (const auto& entry : all) {
    torch::Tensor buffer = entry.value;
    if (buffer.is_floating_point() && buffer.scalar_type() != format) {
      buffer.set_data(buffer.to(format));
    }
  }
}

std::vector<torch::IValue> ScriptedModel::Inputs(const Batch& batch, torch::ScalarType format,
                                                 std::optional<torch::ScalarType> autocast) {
  // Only the module itself knows which of the fields its loss is measured against.
  const bool own_loss = spec_.loss() == training::v1::SCRIPTED_LOSS_MODULE;
  if (own_loss && format != torch::kFloat && !autocast && !casts_.contains(format)) {
    casts_[format] = std::vector<bool>(inputs_.size(), true);
    casts_[format] = FindCasts(batch, format);
  }
  const auto casts = casts_.find(format);
  std::vector<torch::IValue> inputs;
  for (size_t i = 0; i < inputs_.size(); ++i) {
    const torch::Tensor& field = batch.at(inputs_[i]);
    const bool as_given = casts != casts_.end() && !casts->second[i];
    inputs.emplace_back(!field.is_floating_point() ? field
                                                   : field.to(as_given ? torch::kFloat : format));
  }
  return inputs;
}

std::vector<bool> ScriptedModel::FindCasts(const Batch& batch, torch::ScalarType format) {
  std::vector<size_t> floats;
  for (size_t i = 0; i < inputs_.size(); ++i) {
    if (batch.at(inputs_[i]).is_floating_point()) floats.push_back(i);
  }
  // With many fields only the first ones are cast in other sets than "all before".
  const size_t choices = std::min(floats.size(), kMaxChoices);
  std::vector<unsigned> sets(size_t{1} << choices);
  std::iota(sets.begin(), sets.end(), 0U);
  std::stable_sort(sets.begin(), sets.end(),
                   [](unsigned a, unsigned b) { return std::popcount(a) < std::popcount(b); });
  const std::vector<bool> all(inputs_.size(), true);
  for (const unsigned set : sets) {
    std::vector<bool> casts = all;
    for (size_t i = 0; i < choices; ++i) casts[floats[i]] = (set >> i & 1U) != 0;
    casts_[format] = casts;
    try {
      const KeptModule kept(module_, Moving());
      const KeptGenerators generators(device());
      const at::AutoGradMode with_gradients(true);
      Gradients(Output(batch, std::nullopt).reshape({}));
      return casts;
    } catch (const std::exception& error) {
      if (IsOutOfMemory(error) || IsDeviceFault(error)) throw;
    }
  }
  return all;
}

std::vector<torch::Tensor> ScriptedModel::Gradients(const torch::Tensor& loss) const {
  std::vector<torch::Tensor> parameters;
  for (const auto& [name, parameter] : parameters_) parameters.push_back(parameter);
  return torch::autograd::grad({loss}, parameters, /*grad_outputs=*/{},
                               /*retain_graph=*/std::nullopt, /*create_graph=*/false,
                               /*allow_unused=*/true);
}

torch::Tensor ScriptedModel::Output(const Batch& batch, std::optional<torch::ScalarType> autocast) {
  const torch::ScalarType format = parameters_.front().second.scalar_type();
  FollowFormat(format);
  std::vector<torch::IValue> inputs = Inputs(batch, format, autocast);
  torch::IValue output;
  {
    const PlainExecution plain;
    const AutocastGuard guard(device().type(), autocast);
    output = module_.forward(std::move(inputs));
  }
  for (auto& [name, frozen] : frozen_) frozen.Follow(format);
  if (!output.isTensor()) {
    throw std::invalid_argument(absl::StrCat("forward of ", spec_.path(), " returned ",
                                             output.type()->str(),
                                             "; it has to return one Tensor"));
  }
  CheckOutput(output.toTensor(), batch);
  return output.toTensor().to(torch::kFloat);
}

torch::Tensor ScriptedModel::Target(const Batch& batch) const {
  const torch::Tensor& target = batch.at(spec_.target());
  return target.to(spec_.loss() == training::v1::SCRIPTED_LOSS_CROSS_ENTROPY ? torch::kLong
                                                                             : torch::kFloat);
}

void ScriptedModel::CheckOutput(const torch::Tensor& output, const Batch& batch) const {
  const auto refuse = [&](const std::string& wanted) {
    throw std::invalid_argument(
        absl::StrCat("forward of ", spec_.path(), " returned ", Describe(output), "; ", wanted));
  };
  if (!output.is_floating_point()) refuse("the loss needs floating-point numbers");
  if (spec_.loss() == training::v1::SCRIPTED_LOSS_MODULE) {
    if (output.numel() != 1) {
      refuse(
          "with model.torchscript.loss MODULE it returns the mean loss of the batch, one "
          "number; or give MSE, CROSS_ENTROPY or HUBER");
    }
    return;
  }
  const torch::Tensor& target = batch.at(spec_.target());
  const std::string is = absl::StrCat("the field ", spec_.target(), " is ", Describe(target));
  if (spec_.loss() != training::v1::SCRIPTED_LOSS_CROSS_ENTROPY) {
    if (output.sizes() != target.sizes()) refuse(absl::StrCat(is, "; both need the same shape"));
    return;
  }
  if (target.is_floating_point()) {
    refuse(absl::StrCat(is, "; CROSS_ENTROPY needs class numbers, e.g. int64"));
  }
  if (output.dim() < 2) refuse("CROSS_ENTROPY needs logits [B, C, ...]");
  std::vector<int64_t> wanted = output.sizes().vec();
  wanted.erase(wanted.begin() + 1);
  if (target.sizes() != torch::IntArrayRef(wanted)) {
    refuse(absl::StrCat(is, "; CROSS_ENTROPY needs it to be ", SizesText(wanted),
                        " for logits [B, C, ...]"));
  }
}

torch::Tensor ScriptedModel::Compare(const torch::Tensor& output, const torch::Tensor& target,
                                     bool mean) const {
  // Overloads of the options' constructors take the reduction as a tag.
  const auto with = [&](auto options) {
    if (mean) return options;
    return options.reduction(torch::kNone);
  };
  switch (spec_.loss()) {
    case training::v1::SCRIPTED_LOSS_CROSS_ENTROPY:
      return F::cross_entropy(output, target, with(F::CrossEntropyFuncOptions()));
    case training::v1::SCRIPTED_LOSS_HUBER:
      return F::huber_loss(output, target, with(F::HuberLossFuncOptions()));
    default:
      return F::mse_loss(output, target, with(F::MSELossFuncOptions()));
  }
}

torch::Tensor ScriptedModel::LossOfEach(const torch::Tensor& output,
                                        const torch::Tensor& target) const {
  const torch::Tensor losses = Compare(output, target, /*mean=*/false);
  return losses.dim() > 1 ? losses.flatten(1).mean(1) : losses;
}

torch::Tensor ScriptedModel::LossOf(const Batch& batch, std::optional<torch::ScalarType> autocast) {
  const torch::Tensor output = Output(batch, autocast);
  if (torch::GradMode::is_enabled() && !output.requires_grad()) {
    throw std::invalid_argument(absl::StrCat(
        "forward of ", spec_.path(), " returned ", Describe(output),
        " that no parameter has a gradient of; the result has to depend on a trained parameter, "
        "without torch.no_grad(), detach() or item() on the way"));
  }
  if (spec_.loss() == training::v1::SCRIPTED_LOSS_MODULE) return output.reshape({});
  const torch::Tensor target = Target(batch);
  const auto weights = Weights(batch);
  if (!weights) return Compare(output, target, /*mean=*/true);
  const torch::Tensor losses = LossOfEach(output, target);
  example_losses_ = losses.detach();
  return (losses * *weights).mean();
}

torch::Tensor ScriptedModel::Loss(const Batch& batch, std::optional<torch::ScalarType> autocast) {
  try {
    return LossOf(batch, autocast);
  } catch (const std::exception& error) {
    Explain(batch, error);
  }
}

std::vector<MetricSum> ScriptedModel::FiguresOf(const Batch& batch) {
  const DivisorWatch divisors;
  const torch::Tensor output = Output(batch, std::nullopt);
  if (spec_.loss() == training::v1::SCRIPTED_LOSS_MODULE) {
    const torch::Tensor loss = output.to(torch::kDouble).reshape({});
    const torch::Tensor divisor = divisors.Of(output);
    if (!divisor.defined()) return {{"loss", loss * static_cast<double>(batch.size())}};
    return {MeanOver(loss, divisor)};
  }
  const torch::Tensor target = Target(batch);
  std::vector<MetricSum> sums = {SumOf("loss", LossOfEach(output, target))};
  if (spec_.loss() == training::v1::SCRIPTED_LOSS_CROSS_ENTROPY) {
    sums.push_back(SumOf("accuracy", output.argmax(1).eq(target)));
    // Targets that are left out are so here, too, as in the mean that is trained.
    for (MetricSum& sum : sums) sum.count = SumOf("", target.ne(kIgnored)).sum;
  }
  return sums;
}

std::vector<MetricSum> ScriptedModel::Evaluate(const Batch& batch) {
  const ScriptedEvaluation evaluation(module_, device(), Moving());
  try {
    return FiguresOf(batch);
  } catch (const std::exception& error) {
    Explain(batch, error);
  }
}

void ScriptedModel::Explain(const Batch& batch, const std::exception& error) {
  const bool said = dynamic_cast<const std::invalid_argument*>(&error) != nullptr;
  if (said || IsOutOfMemory(error) || IsDeviceFault(error)) throw;
  if (const std::string example = FindBadExample(batch); !example.empty()) {
    throw DataFault(absl::StrCat(data_path_, ": ", example, "; torch says: ", ModuleWords(error)));
  }
  const bool by_name = spec_.inputs().empty() && inputs_.size() > 1;
  throw std::invalid_argument(absl::StrCat(
      "forward of ", spec_.path(), " fails on ", Given(batch),
      by_name ? " (in the order of their names; model.torchscript.inputs sets another)" : "", ": ",
      ModuleWords(error)));
}

void ScriptedModel::ExplainBackward(const Batch& batch, const std::exception& error) {
  if (IsOutOfMemory(error) || IsDeviceFault(error)) throw;
  throw std::invalid_argument(absl::StrCat("the backward pass of ", spec_.path(), " fails on ",
                                           Given(batch), ": ", ModuleWords(error)));
}

bool ScriptedModel::Fails(const Batch& batch) {
  const ScriptedEvaluation evaluation(module_, device(), Moving());
  try {
    LossOf(batch, std::nullopt);
    return false;
  } catch (const std::exception&) {
    return true;
  }
}

std::string ScriptedModel::FindBadExample(const Batch& batch) {
  std::vector<std::string> names = inputs_;
  if (spec_.loss() != training::v1::SCRIPTED_LOSS_MODULE) names.push_back(spec_.target());
  const std::optional<BadExample> bad =
      genesis::FindBadExample(batch, names, [this](const Batch& part) { return Fails(part); });
  if (!bad) return "";
  if (spec_.loss() != training::v1::SCRIPTED_LOSS_CROSS_ENTROPY || bad->field != spec_.target()) {
    return absl::StrCat(bad->where, "; ", CureOf(*bad));
  }
  const ScriptedEvaluation evaluation(module_, device(), Moving());
  const int64_t count = Output(bad->other, std::nullopt).size(1);
  return absl::StrCat(
      bad->where, "; accepted: a class number from 0 to ", count - 1, ", as the output has ", count,
      " classes, or -100 to leave it out; correct the data, or give the module more "
      "classes");
}

std::string ScriptedModel::Given(const Batch& batch) const {
  return absl::StrJoin(inputs_, ", ", [&](std::string* out, const std::string& name) {
    absl::StrAppend(out, name, " ", Describe(batch.at(name)));
  });
}

absl::Status ScriptedModel::Try(const Dataset& dataset, int64_t batch_size) {
  const int64_t most = std::max<int64_t>(1, dataset.training_size());
  const int64_t whole = std::clamp<int64_t>(batch_size, 1, most);
  const int64_t few = std::min(batch_size > 0 ? whole : most, kTriedExamples);
  absl::Status status;
  // Few examples are soon tried; a module that takes no other batches than the job's is tried on
  // one of those.
  for (const int64_t count : {few, whole}) {
    std::vector<int64_t> examples(static_cast<size_t>(count));
    std::iota(examples.begin(), examples.end(), 0);
    const absl::StatusOr<Batch> batch = SampleBatch(dataset, examples);
    if (!batch.ok()) return batch.status();
    status = TryOn(*batch);
    if (!absl::IsInvalidArgument(status) || whole <= few) return status;
  }
  return status;
}

absl::Status ScriptedModel::TryOn(const Batch& batch) {
  constexpr char kPlace[] = "model.torchscript: ";
  std::vector<torch::Tensor> all;
  std::vector<uint32_t> versions;
  for (const auto& [name, parameter] : parameters_) {
    all.push_back(parameter);
    versions.push_back(parameter._version());
  }
  for (const auto& [name, frozen] : frozen_) all.push_back(frozen.exact());
  try {
    // A forward may change parameters, too: a target network that follows, weights that are
    // clipped.
    const KeptModule whole(module_, all);
    const OperationCounter counter;
    Evaluate(batch);
    operations_ = 3 * counter.operations() / batch.size();  // Backward is twice forward.
    if (operations_ == 0) {
      // Products of a kind that is not counted: as if each weight were used once per example.
      for (const auto& entry : parameters_) operations_ += 6 * entry.second.numel();
    }
    const KeptGenerators generators(device());
    const torch::Tensor loss = Loss(batch, std::nullopt);
    std::vector<torch::Tensor> gradients;
    try {
      gradients = Gradients(loss);
    } catch (const std::exception& error) {
      ExplainBackward(batch, error);
    }
    without_gradient_.clear();
    for (size_t i = 0; i < versions.size(); ++i) {
      if (!gradients[i].defined()) without_gradient_.push_back(parameters_[i].first);
      changes_parameters_ |= parameters_[i].second._version() != versions[i];
    }
  } catch (const DataFault& fault) {
    return absl::OutOfRangeError(fault.what());
  } catch (const std::invalid_argument& error) {
    return absl::InvalidArgumentError(absl::StrCat(kPlace, error.what()));
  } catch (const std::exception& error) {
    const std::string what = absl::StrCat(kPlace, spec_.path(), " cannot be tried on ",
                                          Given(batch), ": ", ModuleWords(error));
    if (!IsOutOfMemory(error)) return absl::InvalidArgumentError(what);
    return absl::ResourceExhaustedError(absl::StrCat(
        "no memory left: ", what, "; lower training.batch_size or the size of the model"));
  }
  return absl::OkStatus();
}

}  // namespace genesis
