#include "trainer/compiled/compiled_step.h"

#include <google/protobuf/struct.pb.h>
#include <google/protobuf/util/json_util.h>
#include <torch/csrc/inductor/aoti_runner/model_container_runner.h>

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "trainer/compiled/package_file.h"
#include "trainer/models/base/gradients.h"

namespace genesis {
namespace {

using torch::inductor::AOTIModelContainerRunner;

absl::Status CheckSame(const std::string& path, const std::string& made_for,
                       const StepDescription& description) {
  if (made_for == description.text) return absl::OkStatus();
  if (made_for.empty()) {
    return absl::InvalidArgumentError(absl::StrCat(path, " does not name its step"));
  }
  const std::vector<std::string> theirs = absl::StrSplit(made_for, '\n');
  const std::vector<std::string> ours = absl::StrSplit(description.text, '\n');
  const auto [their, our] = std::mismatch(theirs.begin(), theirs.end(), ours.begin(), ours.end());
  return absl::InvalidArgumentError(absl::StrCat(
      path, " was compiled for another step: it has ", their == theirs.end() ? "no more" : *their,
      "; the job has ", our == ours.end() ? "no more" : *our));
}

// Returns the shape of each field in a verified description.
std::map<std::string, std::vector<int64_t>> FieldShapes(const std::string& text) {
  google::protobuf::Struct description;
  std::map<std::string, std::vector<int64_t>> shapes;
  if (!google::protobuf::util::JsonStringToMessage(text, &description).ok()) return shapes;
  for (const auto& field : description.fields().at("fields").list_value().values()) {
    const auto& parts = field.struct_value().fields();
    std::vector<int64_t>& shape = shapes[parts.at("name").string_value()];
    for (const auto& size : parts.at("shape").list_value().values()) {
      shape.push_back(static_cast<int64_t>(size.number_value()));
    }
  }
  return shapes;
}

}  // namespace

absl::StatusOr<std::unique_ptr<CompiledStep>> CompiledStep::Load(const std::string& path,
                                                                 const StepDescription& description,
                                                                 const Model& model) {
  const absl::StatusOr<PackageFile> package = PackageFile::Open(path);
  if (!package.ok()) return package.status();
  const absl::StatusOr<std::string> made_for = package->MadeFor();
  if (!made_for.ok()) return made_for.status();
  if (absl::Status status = CheckSame(path, *made_for, description); !status.ok()) return status;
  absl::StatusOr<std::unique_ptr<AOTIModelContainerRunner>> runner = package->Load();
  if (!runner.ok()) return runner.status();
  return std::unique_ptr<CompiledStep>(
      new CompiledStep(*std::move(runner), model, description.text));
}

CompiledStep::CompiledStep(std::unique_ptr<AOTIModelContainerRunner> runner, const Model& model,
                           const std::string& text)
    : runner_(std::move(runner)), field_shapes_(FieldShapes(text)) {
  for (const auto& [name, tensor] : model.parameters()) parameters_.push_back(tensor);
  for (const auto& [name, tensor] : model.buffers()) buffers_.push_back(tensor);
}

CompiledStep::~CompiledStep() = default;

bool CompiledStep::Fits(const Batch& batch) const {
  return std::equal(batch.fields.begin(), batch.fields.end(), field_shapes_.begin(),
                    field_shapes_.end(), [](const auto& field, const auto& wanted) {
                      return field.first == wanted.first &&
                             field.second.sizes() == at::IntArrayRef(wanted.second) &&
                             field.second.is_contiguous();
                    });
}

torch::Tensor CompiledStep::Run(const Batch& batch, const torch::Tensor& scale) {
  const torch::NoGradGuard no_grad;
  std::vector<torch::Tensor> inputs = {scale};
  inputs.reserve(1 + parameters_.size() + buffers_.size() + batch.fields.size());
  inputs.insert(inputs.end(), parameters_.begin(), parameters_.end());
  inputs.insert(inputs.end(), buffers_.begin(), buffers_.end());
  for (const auto& [name, tensor] : batch.fields) inputs.push_back(tensor);

  // The loss, then a gradient per parameter.
  const std::vector<torch::Tensor> outputs = runner_->boxed_run(std::move(inputs));

  std::vector<torch::Tensor> gradients(outputs.begin() + 1, outputs.end());
  for (size_t i = 0; i < parameters_.size(); ++i) {
    // step.py returns an empty gradient for a parameter that the loss does not depend on.
    if (gradients[i].numel() == 0 && parameters_[i].numel() > 0) gradients[i].reset();
  }
  AddGradients(parameters_, gradients);
  return outputs.front();
}

}  // namespace genesis
