#include "trainer/models/scripted_model.h"

#include <algorithm>
#include <stdexcept>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "trainer/models/dataset_fields.h"
#include "trainer/models/module_model.h"
#include "trainer/models/sample_batch.h"
#include "trainer/models/scripted_evaluation.h"
#include "trainer/models/scripted_module.h"
#include "trainer/precision/autocast_guard.h"

namespace genesis {
namespace {

namespace F = torch::nn::functional;
using training::v1::TorchScriptSpec;

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
  std::unique_ptr<ScriptedModel> built(new ScriptedModel(*std::move(module), model, wanted));
  if (absl::Status status = built->Try(dataset); !status.ok()) return status;
  // For modules that draw numbers while they are trained.
  torch::manual_seed(spec.training().seed());
  return built;
}

ScriptedModel::ScriptedModel(torch::jit::Module module, TorchScriptSpec spec,
                             std::vector<std::string> inputs)
    : module_(std::move(module)), spec_(std::move(spec)), inputs_(std::move(inputs)) {
  const auto all = module_.named_parameters();
  for (const auto& entry : all) {
    if (!entry.value.requires_grad()) {
      frozen_.push_back(
          {.name = entry.name, .exact = entry.value.clone(), .used = entry.value, .version = 0});
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

NamedTensors ScriptedModel::buffers() const {
  NamedTensors buffers;
  for (const Frozen& frozen : frozen_) buffers.emplace_back(frozen.name, frozen.exact);
  // Asked for anew each time, for a module may put another tensor in a buffer's place.
  const auto all = module_.named_buffers();
  for (const auto& entry : all) buffers.emplace_back(entry.name, entry.value);
  return buffers;
}

void ScriptedModel::To(torch::Device device) {
  module_.to(device);
  for (Frozen& frozen : frozen_) frozen.exact = frozen.exact.to(device);
}

void ScriptedModel::FollowFormat(torch::ScalarType format) {
  const torch::NoGradGuard no_grad;
  for (Frozen& frozen : frozen_) {
    if (frozen.used.scalar_type() == format && frozen.version == frozen.exact._version()) continue;
    frozen.used.set_data(frozen.exact.to(format, /*non_blocking=*/false, /*copy=*/true));
    frozen.version = frozen.exact._version();
  }
  const auto all = module_.named_buffers();
  for (const auto& entry : all) {
    torch::Tensor buffer = entry.value;
    if (buffer.is_floating_point() && buffer.scalar_type() != format) {
      buffer.set_data(buffer.to(format));
    }
  }
}

torch::Tensor ScriptedModel::Output(const Batch& batch, std::optional<torch::ScalarType> autocast) {
  const torch::ScalarType format = parameters_.front().second.scalar_type();
  FollowFormat(format);
  std::vector<torch::IValue> inputs;
  for (const std::string& name : inputs_) {
    const torch::Tensor& field = batch.at(name);
    inputs.emplace_back(field.is_floating_point() ? field.to(format) : field);
  }
  torch::IValue output;
  {
    const PlainExecution plain;
    const AutocastGuard guard(parameters_.front().second.device().type(), autocast);
    output = module_.forward(std::move(inputs));
  }
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

torch::Tensor ScriptedModel::Loss(const Batch& batch, std::optional<torch::ScalarType> autocast) {
  const torch::Tensor output = Output(batch, autocast);
  if (spec_.loss() == training::v1::SCRIPTED_LOSS_MODULE) return output.reshape({});
  const torch::Tensor target = Target(batch);
  const auto weights = Weights(batch);
  if (!weights) return Compare(output, target, /*mean=*/true);
  const torch::Tensor losses = LossOfEach(output, target);
  example_losses_ = losses.detach();
  return (losses * *weights).mean();
}

std::vector<MetricSum> ScriptedModel::Evaluate(const Batch& batch) {
  const ScriptedEvaluation evaluation(module_, parameters_.front().second.device());
  const torch::Tensor output = Output(batch, std::nullopt);
  if (spec_.loss() == training::v1::SCRIPTED_LOSS_MODULE) {
    return {{"loss", output.to(torch::kDouble).reshape({}) * static_cast<double>(batch.size())}};
  }
  const torch::Tensor target = Target(batch);
  std::vector<MetricSum> sums = {SumOf("loss", LossOfEach(output, target))};
  if (spec_.loss() == training::v1::SCRIPTED_LOSS_CROSS_ENTROPY) {
    sums.push_back(SumOf("accuracy", output.argmax(1).eq(target)));
  }
  return sums;
}

absl::Status ScriptedModel::Try(const Dataset& dataset) {
  std::vector<int64_t> examples(static_cast<size_t>(std::min<int64_t>(2, dataset.size())));
  for (size_t i = 0; i < examples.size(); ++i) examples[i] = static_cast<int64_t>(i);
  const absl::StatusOr<Batch> batch = SampleBatch(dataset, examples);
  if (!batch.ok()) return batch.status();
  std::string given = absl::StrJoin(inputs_, ", ", [&](std::string* out, const std::string& name) {
    absl::StrAppend(out, name, " ", Describe(batch->at(name)));
  });
  try {
    const OperationCounter counter;
    Evaluate(*batch);
    operations_ = 3 * counter.operations() / batch->size();  // Backward is twice forward.
    if (operations_ == 0) {
      // Products of a kind that is not counted: as if each weight were used once per example.
      for (const auto& entry : parameters_) operations_ += 6 * entry.second.numel();
    }
  } catch (const std::invalid_argument& error) {
    return absl::InvalidArgumentError(absl::StrCat("model.torchscript: ", error.what()));
  } catch (const std::exception& error) {
    return absl::InvalidArgumentError(absl::StrCat("model.torchscript: forward of ", spec_.path(),
                                                   " fails on ", given, ": ",
                                                   LastLine(error.what())));
  }
  return absl::OkStatus();
}

}  // namespace genesis
