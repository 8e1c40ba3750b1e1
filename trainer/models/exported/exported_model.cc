#include "trainer/models/exported/exported_model.h"

#include <algorithm>
#include <array>
#include <numeric>
#include <set>
#include <stdexcept>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/text/enum_names.h"
#include "base/text/text.h"
#include "config/precision/mode.h"
#include "config/precision/precision.h"
#include "trainer/kernels/own_kernels.h"
#include "trainer/models/base/dataset_fields.h"
#include "trainer/models/base/gradients.h"
#include "trainer/models/base/kept_state.h"
#include "trainer/models/base/module_model.h"
#include "trainer/models/base/operation_counter.h"
#include "trainer/models/base/sample_batch.h"
#include "trainer/models/exported/bad_example.h"
#include "trainer/models/exported/batch_size.h"
#include "trainer/models/exported/linear_cross_entropy_graph.h"
#include "trainer/precision/format.h"
#include "trainer/runtime/torch_errors.h"

namespace genesis {
namespace {

using torch::autograd::variable_list;
using training::v1::JobSpec;
using training::v1::PrecisionMode;

// Seed of evaluations, so that each evaluation draws the same numbers.
constexpr uint64_t kEvaluationSeed = 0;
// Number of examples of a trial pass; batch norm needs more than one.
constexpr int64_t kTriedExamples = 2;

// A loss whose gradients are already known, as an autograd node.
class KnownGradients final : public torch::autograd::Node {
 public:
  // Returns `loss` as a tensor whose backward pass gives `parameters` these gradients.
  static torch::Tensor Attach(const torch::Tensor& loss, variable_list gradients,
                              const variable_list& parameters) {
    const std::shared_ptr<KnownGradients> node(new KnownGradients(std::move(gradients)),
                                               torch::autograd::deleteNode);
    node->set_next_edges(torch::autograd::collect_next_edges(parameters));
    torch::Tensor result = loss.clone();
    torch::autograd::create_gradient_edge(result, node);
    return result;
  }

  variable_list apply(variable_list&& outputs) override {
    variable_list inputs;
    for (const torch::Tensor& gradient : gradients_) {
      inputs.push_back(gradient.defined() ? gradient * outputs.front() : torch::Tensor());
    }
    return inputs;
  }

 private:
  explicit KnownGradients(variable_list gradients) : gradients_(std::move(gradients)) {}

  const variable_list gradients_;
};

// Returns the format in which a graph computes. For kEvaluationGraph this is FP32.
StepFormat FormatOfGraph(const std::string& graph) {
  return FormatOf(ParseEnumName<PrecisionMode>(graph).value_or(training::v1::PRECISION_MODE_FP32));
}

// Checks that the file has a graph for each mode that the job names.
absl::Status CheckPrecisions(const JobSpec& spec, const ExportedFile& file) {
  std::vector<std::pair<std::string, PrecisionMode>> named = {
      {"precision.mode", spec.precision().mode()}};
  for (int i = 0; i < spec.precision().fallbacks_size(); ++i) {
    named.emplace_back(absl::StrCat("precision.fallbacks[", i, "]"), spec.precision().fallbacks(i));
  }
  for (const auto& [field, mode] : named) {
    if (mode == training::v1::PRECISION_MODE_UNSPECIFIED ||
        mode == training::v1::PRECISION_MODE_AUTO ||
        file.precisions.contains(ShortEnumName(mode))) {
      continue;
    }
    const auto reason = file.without.find(ShortEnumName(mode));
    return absl::InvalidArgumentError(absl::StrCat(
        field, " is ", ShortEnumName(mode), ", of which ", file.path,
        " has no graph; accepted: ", absl::StrJoin(file.precisions, ", "), "; ",
        reason == file.without.end()
            ? "or export the module for it"
            : absl::StrCat("when it was exported, ", OneLine(reason->second, kMaxLineBytes))));
  }
  return absl::OkStatus();
}

bool IsPrioritized(const JobSpec& spec) {
  return spec.dataset().sampling().kind() == training::v1::SAMPLING_KIND_PRIORITIZED;
}

absl::Status CheckSampling(const JobSpec& spec, const ExportedFile& file) {
  if (!IsPrioritized(spec) || file.by_example) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(
      "dataset.sampling.kind is PRIORITIZED, which weighs the loss of each example, and ",
      file.path,
      " has their mean alone; accepted: UNIFORM, or a module exported with a loss that returns one "
      "value for each example, a tensor [batch]"));
}

absl::Status CheckFields(const JobSpec& spec, const Dataset& dataset, const ExportedFile& file) {
  const DatasetFields fields(spec, dataset, absl::StrCat("model.exported (", file.path, ")"));
  for (const Field& field : file.fields) {
    std::vector<Dimension> shape;
    for (const int64_t size : field.shape) shape.push_back({.letter = "", .size = size});
    const absl::StatusOr<std::vector<int64_t>> found =
        fields.Shape(field.name, shape, {field.type});
    if (!found.ok()) return found.status();
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<std::unique_ptr<Model>> ExportedModel::Build(const JobSpec& spec,
                                                            const Dataset& dataset) {
  absl::StatusOr<ExportedFile> file = ExportedFile::Open(spec.model().exported().path());
  if (!file.ok()) return file.status();
  if (absl::Status status = CheckPrecisions(spec, *file); !status.ok()) return status;
  if (absl::Status status = CheckSampling(spec, *file); !status.ok()) return status;
  if (absl::Status status = CheckFields(spec, dataset, *file); !status.ok()) return status;
  if (absl::Status status = CheckBatchSize(spec, dataset, *file); !status.ok()) return status;
  std::unique_ptr<ExportedModel> built(new ExportedModel(*std::move(file), spec));
  if (UsesOwnKernels()) {
    if (absl::Status status = built->UseGraphs(WithLinearCrossEntropy); !status.ok()) return status;
  }
  if (absl::Status status = built->Try(dataset, spec.training().batch_size()); !status.ok()) {
    return status;
  }
  // Modules may draw numbers in training.
  torch::manual_seed(spec.training().seed());
  return built;
}

ExportedModel::ExportedModel(ExportedFile file, const JobSpec& spec)
    : file_(std::move(file)),
      data_path_(DataPath(spec)),
      prioritized_(IsPrioritized(spec)),
      one_(torch::ones({})) {
  using Role = ExportedFile::Role;
  for (const ExportedFile::NamedTensor& entry : file_.tensors) {
    by_name_[entry.name] = entry.tensor;
    if (entry.role == Role::kTrained) {
      entry.tensor.set_requires_grad(true);
      parameter_numbers_[entry.name] = parameters_.size();
      parameters_.emplace_back(entry.name, entry.tensor);
    } else if (entry.role == Role::kKept) {
      buffers_.emplace_back(entry.name, entry.tensor);
    } else if (entry.role == Role::kPassing) {
      passing_.emplace_back(entry.name, entry.tensor);
      first_passing_.emplace_back(entry.name, entry.tensor.clone());
    }
  }
  // An estimate for operators that are not counted: each weight is used once per example.
  for (const auto& [name, tensor] : parameters_) operations_ += 6 * tensor.numel();
}

ExportedModel::~ExportedModel() = default;

std::vector<std::string> ExportedModel::without_gradient() const {
  std::vector<std::string> names;
  for (const auto& [name, tensor] : parameters_) {
    const auto& with = file_.gradients;
    if (std::find(with.begin(), with.end(), name) == with.end()) names.push_back(name);
  }
  return names;
}

void ExportedModel::To(torch::Device device) {
  if (device.is_cpu()) return;
  if (absl::Status status = UseGraphs(ForCuda); !status.ok()) {
    throw std::invalid_argument(std::string(status.message()));
  }
  // Move the tensors in place, because parameters, buffers and by_name_ share them.
  for (const ExportedFile::NamedTensor& entry : file_.tensors) {
    entry.tensor.set_data(entry.tensor.detach().to(device));
  }
  one_ = one_.to(device);
}

bool ExportedModel::supports(PrecisionMode mode) const {
  return mode == training::v1::PRECISION_MODE_AUTO ||
         file_.precisions.contains(ShortEnumName(mode));
}

absl::Status ExportedModel::UseGraphs(const RewrittenGraphs::Rewrite& rewrite) {
  absl::StatusOr<std::optional<RewrittenGraphs>> graphs = RewrittenGraphs::Make(file_, rewrite);
  if (!graphs.ok()) return graphs.status();
  runners_.clear();
  rewritten_.reset();
  if (*graphs) rewritten_.emplace(**std::move(graphs));
  return absl::OkStatus();
}

absl::Status ExportedModel::Load(const std::string& graph) {
  auto& runner = runners_[graph];
  if (runner != nullptr) return absl::OkStatus();
  absl::StatusOr<std::unique_ptr<GraphRunner>> loaded =
      GraphRunner::Load(file_, graph, rewritten_ ? rewritten_->path() : file_.path);
  if (!loaded.ok()) return loaded.status();
  runner = *std::move(loaded);
  return absl::OkStatus();
}

std::vector<torch::Tensor> ExportedModel::Run(const std::string& graph, const Batch& batch,
                                              const torch::Tensor& scale) {
  try {
    return RunGraph(graph, batch, scale);
  } catch (const std::exception& error) {
    Explain(graph, batch, error);
  }
}

void ExportedModel::Explain(const std::string& graph, const Batch& batch,
                            const std::exception& error) {
  const bool said = dynamic_cast<const std::invalid_argument*>(&error) != nullptr;
  if (said || IsOutOfMemory(error) || IsDeviceFault(error)) throw;
  const std::string words = GraphErrorText(error);
  const auto fails = [this](const Batch& part) {
    try {
      RunGraph(kEvaluationGraph, file_.batch_size ? Repeated(part, *file_.batch_size) : part, one_);
      return false;
    } catch (const std::exception&) {
      return true;
    }
  };
  std::vector<std::string> names;
  for (const Field& field : file_.fields) names.push_back(field.name);
  const bool can_try = Load(kEvaluationGraph).ok();
  if (const auto bad = can_try ? FindBadExample(batch, names, fails) : std::nullopt) {
    throw DataFault(
        absl::StrCat(data_path_, ": ", bad->where, "; ", CureOf(*bad), "; torch says: ", words));
  }
  const std::string cure = CureOfAnotherTorch(file_);
  throw std::invalid_argument(absl::StrCat("model.exported: the graph ", graph, " of ", file_.path,
                                           " fails on a batch of ", batch.size(),
                                           " examples: ", words, cure.empty() ? "" : "; ", cure));
}

torch::Tensor ExportedModel::WeightsOf(const Batch& batch, int64_t examples) const {
  // A recomputed batch has no weights.
  const auto found = batch.fields.find("weight");
  const bool weighed = prioritized_ && found != batch.fields.end();
  return weighed ? found->second.reshape({-1}) : torch::ones({examples}, one_.options());
}

std::vector<torch::Tensor> ExportedModel::RunGraph(const std::string& graph, const Batch& batch,
                                                   const torch::Tensor& scale) {
  std::vector<torch::Tensor> inputs = {scale};
  for (const Field& field : file_.fields) inputs.push_back(batch.at(field.name));
  if (file_.by_example) inputs.push_back(WeightsOf(batch, inputs[1].size(0)));
  const torch::ScalarType weights = FormatOfGraph(graph).weights;
  for (const ExportedFile::NamedTensor& entry : file_.tensors) {
    if (entry.role == ExportedFile::Role::kConstant) continue;
    // A graph computes its own gradients without autograd. Only trials and diagnoses run a graph in
    // a format other than the parameters' format.
    const torch::Tensor tensor = entry.tensor.detach();
    inputs.push_back(entry.role == ExportedFile::Role::kTrained ? tensor.to(weights) : tensor);
  }
  const auto constants = file_.constants.find(graph);
  if (constants != file_.constants.end()) {
    for (const std::string& name : constants->second) inputs.push_back(by_name_.at(name));
  }
  // The outputs share no memory with inputs, so gradients can be accumulated in place.
  return runners_.at(graph)->Run(inputs);
}

std::string ExportedModel::GraphOf(std::optional<torch::ScalarType> autocast) const {
  const torch::ScalarType weights = parameters_.front().second.scalar_type();
  for (const std::string& graph : file_.precisions) {
    const StepFormat format = FormatOfGraph(graph);
    if (format.weights == weights && format.autocast == autocast) return graph;
  }
  throw std::invalid_argument(
      absl::StrCat("model.exported: ", file_.path,
                   " has no graph of the precision that the job came to; it has ",
                   absl::StrJoin(file_.precisions, ", ")));
}

ExportedModel::Step ExportedModel::MakeStep(const std::string& graph, const Batch& batch,
                                            const torch::Tensor& scale) {
  if (absl::Status status = Load(graph); !status.ok()) {
    throw std::invalid_argument(std::string(status.message()));
  }
  const std::vector<torch::Tensor> outputs = Run(graph, batch, scale);
  const size_t first = file_.by_example ? 2 : 1;
  const size_t expected = first + file_.gradients.size() + file_.changed.size();
  if (outputs.size() != expected || outputs.front().numel() != 1) {
    throw std::invalid_argument(absl::StrCat(
        "model.exported: the graph ", graph, " of ", file_.path, " gives ", outputs.size(),
        " tensors; accepted: ", expected, ", a loss of one number first"));
  }
  if (file_.by_example) {
    if (outputs[1].sizes() != torch::IntArrayRef({batch.size()})) {
      throw std::invalid_argument(absl::StrCat(
          "model.exported: the graph ", graph, " of ", file_.path, " gives losses ",
          SizesText(outputs[1].sizes().vec()), " for a batch of ", batch.size(), " examples"));
    }
    example_losses_ = outputs[1].to(torch::kFloat);
  }
  const torch::NoGradGuard no_grad;
  Step step;
  step.loss = outputs.front().to(torch::kFloat).reshape({});
  step.gradients.resize(parameters_.size());
  for (size_t i = 0; i < file_.gradients.size(); ++i) {
    const size_t number = parameter_numbers_.at(file_.gradients[i]);
    const torch::Tensor& gradient = outputs[first + i];
    if (gradient.sizes() != parameters_[number].second.sizes()) {
      throw std::invalid_argument(absl::StrCat(
          "model.exported: the graph ", graph, " of ", file_.path, " returns a gradient ",
          SizesText(gradient.sizes().vec()), " for ", file_.gradients[i], ", which is ",
          SizesText(parameters_[number].second.sizes().vec())));
    }
    step.gradients[number] = gradient.to(parameters_[number].second.scalar_type());
  }
  for (size_t i = 0; i < file_.changed.size(); ++i) {
    by_name_.at(file_.changed[i]).copy_(outputs[first + file_.gradients.size() + i]);
  }
  return step;
}

torch::Tensor ExportedModel::AddLossAndGradients(const Batch& batch,
                                                 std::optional<torch::ScalarType> autocast,
                                                 const torch::Tensor& scale) {
  Step step = MakeStep(GraphOf(autocast), batch, scale);
  std::vector<torch::Tensor> parameters;
  for (const auto& [name, tensor] : parameters_) parameters.push_back(tensor);
  AddGradients(parameters, step.gradients);
  return step.loss;
}

torch::Tensor ExportedModel::Loss(const Batch& batch, std::optional<torch::ScalarType> autocast) {
  const Step step = MakeStep(GraphOf(autocast), batch, one_);
  if (!torch::GradMode::is_enabled()) return step.loss;
  variable_list parameters;
  for (const auto& [name, tensor] : parameters_) parameters.push_back(tensor);
  return KnownGradients::Attach(step.loss, step.gradients, parameters);
}

std::unique_ptr<ModelState> ExportedModel::CopyState() const {
  if (file_.changed.empty()) return nullptr;
  std::vector<torch::Tensor> changed;
  for (const std::string& name : file_.changed) changed.push_back(by_name_.at(name));
  return std::make_unique<TensorCopies>(changed);
}

NamedTensors ExportedModel::attributes() const {
  NamedTensors attributes;
  for (const auto& [name, tensor] : passing_) {
    // Copy, because the forward pass may change attributes while a checkpoint is written.
    attributes.emplace_back(name, tensor.detach().to(at::kCPU, tensor.scalar_type(),
                                                     /*non_blocking=*/false, /*copy=*/true));
  }
  return attributes;
}

void ExportedModel::PutAttributes(const NamedTensors& attributes) {
  const torch::NoGradGuard no_grad;
  const std::array<const NamedTensors*, 2> sources = {&first_passing_, &attributes};
  for (const NamedTensors* values : sources) {
    for (const auto& [name, tensor] : *values) {
      const auto found =
          std::find_if(passing_.begin(), passing_.end(),
                       [&name = name](const auto& entry) { return entry.first == name; });
      if (found != passing_.end() && found->second.sizes() == tensor.sizes()) {
        found->second.copy_(tensor);
      }
    }
  }
}

std::vector<MetricSum> ExportedModel::Evaluate(const Batch& batch) {
  KeptGenerators generators(one_.device());
  generators.Seed(kEvaluationSeed);
  if (absl::Status status = Load(kEvaluationGraph); !status.ok()) {
    throw std::invalid_argument(std::string(status.message()));
  }
  const std::vector<torch::Tensor> outputs = Run(kEvaluationGraph, batch, one_);
  if (outputs.empty() || outputs.front().numel() != 1) {
    throw std::invalid_argument(absl::StrCat("model.exported: the graph ", kEvaluationGraph, " of ",
                                             file_.path, " does not return a scalar loss"));
  }
  const auto number = [&outputs](size_t i) { return outputs[i].to(torch::kDouble).reshape({}); };
  const auto examples = static_cast<double>(batch.size());
  if (file_.held_out_quotients == 0) return {{"loss", number(0) * examples}};
  std::vector<MetricSum> sums = {{"loss", number(1) * examples}};
  for (size_t i = 2; i + kQuotientOutputs <= outputs.size(); i += kQuotientOutputs) {
    sums.push_back({"loss", number(i), number(i + 1), number(i + 2), number(i + 3), number(i + 4),
                    number(i + 5)});
  }
  return sums;
}

absl::Status ExportedModel::Try(const Dataset& dataset, int64_t batch_size) {
  const int64_t most = std::max<int64_t>(1, dataset.training_size());
  std::vector<int64_t> examples(static_cast<size_t>(std::min(
      {most, std::max<int64_t>(1, batch_size), file_.batch_size.value_or(kTriedExamples)})));
  std::iota(examples.begin(), examples.end(), 0);
  const absl::StatusOr<Batch> batch = SampleBatch(dataset, examples);
  if (!batch.ok()) return batch.status();
  const std::shared_ptr<const void> kept = KeepState();
  try {
    const KeptGenerators generators(torch::kCPU);
    const OperationCounter counter;
    Evaluate(*batch);
    // Backward costs twice as much as forward.
    const int64_t counted = 3 * counter.operations() / batch->size();
    if (counted > 0) operations_ = counted;
    const torch::NoGradGuard no_grad;
    for (const std::string& graph : file_.precisions) MakeStep(graph, *batch, one_);
  } catch (const DataFault& fault) {
    return absl::OutOfRangeError(fault.what());
  } catch (const std::invalid_argument& error) {
    return absl::InvalidArgumentError(error.what());
  } catch (const std::exception& error) {
    const std::string what =
        absl::StrCat("model.exported: ", file_.path, " cannot be tried on the first ",
                     batch->size(), " examples: ", TorchText(error));
    return IsOutOfMemory(error)
               ? absl::ResourceExhaustedError(absl::StrCat("no memory left: ", what))
               : absl::InvalidArgumentError(what);
  }
  return absl::OkStatus();
}

}  // namespace genesis
