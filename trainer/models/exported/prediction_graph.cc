#include "trainer/models/exported/prediction_graph.h"

#include <algorithm>
#include <optional>
#include <stdexcept>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/text/field_error.h"
#include "base/text/text.h"
#include "trainer/checkpoint/element_scalar.h"
#include "trainer/runtime/torch_errors.h"

namespace genesis {
namespace {

using Role = ExportedFile::Role;

std::string Describe(const torch::Tensor& tensor) {
  const std::optional<ElementType> type = ToElementType(tensor.scalar_type());
  return absl::StrCat("[", absl::StrJoin(tensor.sizes(), ", "), "] ",
                      type ? ElementTypeName(*type) : c10::toString(tensor.scalar_type()));
}

// Returns the first line of LibTorch's error in the graph.
std::string FirstLine(const std::exception& error) {
  const std::string text = GraphErrorText(error);
  return OneLine(text.substr(0, text.find('\n')), kMaxLineBytes);
}

}  // namespace

absl::StatusOr<std::unique_ptr<PredictionGraph>> PredictionGraph::Open(const std::string& path) {
  absl::StatusOr<ExportedFile> file = ExportedFile::Open(path);
  if (!file.ok()) return file.status();
  if (file->prediction_outputs.empty()) {
    return absl::FailedPreconditionError(
        absl::StrCat(QuoteValue(path),
                     " has no graph of predictions; export it with predict=..., "
                     "as docs/exported_modules.md shows"));
  }
  absl::StatusOr<std::unique_ptr<GraphRunner>> runner =
      GraphRunner::Load(*file, kPredictionGraph, path);
  if (!runner.ok()) return runner.status();
  return std::unique_ptr<PredictionGraph>(
      new PredictionGraph(*std::move(file), *std::move(runner)));
}

PredictionGraph::PredictionGraph(ExportedFile file, std::unique_ptr<GraphRunner> runner)
    : file_(std::move(file)), runner_(std::move(runner)) {
  for (const std::string& name : file_.prediction_inputs) {
    inputs_.push_back(*std::find_if(file_.fields.begin(), file_.fields.end(),
                                    [&](const Field& field) { return field.name == name; }));
  }
  std::map<std::string, torch::Tensor> constants;
  for (const ExportedFile::NamedTensor& entry : file_.tensors) {
    if (entry.role == Role::kConstant) {
      constants[entry.name] = entry.tensor;
    } else {
      weights_.push_back(entry.tensor);
    }
  }
  const auto own = file_.constants.find(kPredictionGraph);
  if (own == file_.constants.end()) return;
  for (const std::string& name : own->second) weights_.push_back(constants.at(name));
}

absl::Status PredictionGraph::Load(const NamedTensors& weights) {
  const std::map<std::string, torch::Tensor> given(weights.begin(), weights.end());
  std::vector<std::pair<torch::Tensor, torch::Tensor>> pairs;
  for (const ExportedFile::NamedTensor& entry : file_.tensors) {
    if (entry.role == Role::kConstant) continue;
    const auto found = given.find(entry.name);
    if (found == given.end()) {
      if (entry.role == Role::kPassing) continue;
      return absl::InvalidArgumentError(absl::StrCat("the weights have no ", QuoteValue(entry.name),
                                                     "; ", file_.path, " needs it, ",
                                                     Describe(entry.tensor)));
    }
    const torch::Tensor& tensor = found->second;
    if (tensor.sizes() != entry.tensor.sizes() ||
        tensor.scalar_type() != entry.tensor.scalar_type()) {
      return absl::InvalidArgumentError(absl::StrCat("the weight ", QuoteValue(entry.name), " is ",
                                                     Describe(tensor), "; ", file_.path, " needs ",
                                                     Describe(entry.tensor)));
    }
    pairs.emplace_back(entry.tensor, tensor);
  }
  const torch::NoGradGuard no_grad;
  for (const auto& [own, other] : pairs) own.copy_(other);
  return absl::OkStatus();
}

std::string PredictionGraph::Accepted() const {
  const std::string examples = file_.batch_size ? absl::StrCat(*file_.batch_size) : "N";
  return OneLine(absl::StrJoin(inputs_, ", ",
                               [&](std::string* out, const Field& field) {
                                 absl::StrAppend(out, field.name, " [", examples);
                                 for (const int64_t size : field.shape)
                                   absl::StrAppend(out, ", ", size);
                                 absl::StrAppend(out, "] ", ElementTypeName(field.type));
                               }),
                 kMaxLineBytes);
}

absl::StatusOr<std::vector<torch::Tensor>> PredictionGraph::Check(
    const std::map<std::string, torch::Tensor>& inputs) const {
  std::vector<torch::Tensor> given;
  std::optional<int64_t> examples = file_.batch_size;
  for (const Field& field : inputs_) {
    const auto found = inputs.find(field.name);
    if (found == inputs.end()) {
      return absl::InvalidArgumentError(absl::StrCat("the input ", QuoteValue(field.name),
                                                     " is missing; accepted: ", Accepted()));
    }
    const torch::Tensor& tensor = found->second;
    if (tensor.scalar_type() != ToScalarType(field.type) || tensor.dim() == 0 ||
        tensor.sizes().slice(1) != torch::IntArrayRef(field.shape) ||
        tensor.size(0) != examples.value_or(std::max<int64_t>(1, tensor.size(0)))) {
      return absl::InvalidArgumentError(absl::StrCat(
          "the input ", QuoteValue(field.name), " is ", Describe(tensor),
          examples ? absl::StrCat(" for ", *examples, " examples") : "", "; accepted: ", Accepted(),
          file_.batch_size ? "" : ", with the same N from 1"));
    }
    examples = tensor.size(0);
    given.push_back(tensor);
  }
  for (const auto& [name, tensor] : inputs) {
    if (std::none_of(inputs_.begin(), inputs_.end(),
                     [&name = name](const Field& field) { return field.name == name; })) {
      return absl::InvalidArgumentError(
          absl::StrCat("the input ", QuoteValue(name), " is unknown; accepted: ", Accepted()));
    }
  }
  return given;
}

absl::StatusOr<NamedTensors> PredictionGraph::Run(
    const std::map<std::string, torch::Tensor>& inputs) {
  absl::StatusOr<std::vector<torch::Tensor>> given = Check(inputs);
  if (!given.ok()) return given.status();
  const int64_t examples = given->front().size(0);
  std::vector<torch::Tensor> computed;
  try {
    for (torch::Tensor& tensor : *given) tensor = tensor.contiguous();
    given->insert(given->end(), weights_.begin(), weights_.end());
    computed = runner_->Run(*given);
  } catch (const std::invalid_argument& error) {
    return absl::InternalError(error.what());
  } catch (const std::exception& error) {
    if (IsOutOfMemory(error)) {
      return absl::ResourceExhaustedError(
          absl::StrCat("no memory left for the predictions of ", examples,
                       " examples; give fewer at a time: ", FirstLine(error)));
    }
    const std::string cure = CureOfAnotherTorch(file_);
    return absl::InvalidArgumentError(absl::StrCat("the predictions of ", file_.path, " fail for ",
                                                   examples, " examples: ", FirstLine(error),
                                                   cure.empty() ? "" : "; ", cure));
  }
  NamedTensors named;
  for (size_t i = 0; i < outputs().size(); ++i) {
    if (computed.size() != outputs().size() || computed[i].dim() == 0 ||
        computed[i].size(0) != examples) {
      return absl::InternalError(absl::StrCat("the graph ", kPredictionGraph, " of ", file_.path,
                                              " returns no ", QuoteValue(outputs()[i]), " for ",
                                              examples, " examples"));
    }
    named.emplace_back(outputs()[i], computed[i]);
  }
  return named;
}

}  // namespace genesis
