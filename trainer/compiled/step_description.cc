#include "trainer/compiled/step_description.h"

#include <ATen/Version.h>
#include <google/protobuf/struct.pb.h>
#include <google/protobuf/util/json_util.h>

#include <fstream>
#include <map>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/files/sha256.h"
#include "base/text/enum_names.h"
#include "config/job/model_kinds.h"
#include "config/precision/precision.h"
#include "trainer/checkpoint/element_scalar.h"
#include "trainer/precision/format.h"

namespace genesis {
namespace {

using training::v1::JobSpec;
using training::v1::ModelSpec;

std::string Json(const google::protobuf::Message& message) {
  google::protobuf::util::JsonPrintOptions options;
  options.preserve_proto_field_names = true;
  options.always_print_primitive_fields = true;
  std::string text;
  const auto status = google::protobuf::util::MessageToJsonString(message, &text, options);
  return status.ok() ? text : "null";
}

std::string JsonString(const std::string& text) {
  google::protobuf::Value value;
  value.set_string_value(text);
  return Json(value);
}

// Returns a hash of the processor's features: a compiler with -march=native uses all of them.
std::string ProcessorFlags() {
  std::ifstream info("/proc/cpuinfo");
  for (std::string line; std::getline(info, line);) {
    // "flags" on x86-64, "Features" on AArch64.
    if (absl::StartsWith(line, "flags") || absl::StartsWith(line, "Features")) {
      return Sha256Hex(line);
    }
  }
  return "";
}

std::string Line(const std::string& name, at::ScalarType type, at::IntArrayRef shape,
                 at::IntArrayRef strides) {
  return absl::StrCat("  {\"name\": ", JsonString(name), ", \"type\": \"",
                      c10::getDtypeNames(type).first, "\", \"shape\": [",
                      absl::StrJoin(shape, ", "), "], \"strides\": [", absl::StrJoin(strides, ", "),
                      "]}");
}

std::string List(const std::string& name, const std::vector<std::string>& lines) {
  return absl::StrCat("\"", name, "\": [\n", absl::StrJoin(lines, ",\n"), "\n]");
}

std::vector<std::string> Lines(const NamedTensors& tensors, at::ScalarType floats) {
  std::vector<std::string> lines;
  for (const auto& [name, tensor] : tensors) {
    // The session may currently hold the weights in a format other than that of the mode.
    const at::ScalarType type = tensor.is_floating_point() ? floats : tensor.scalar_type();
    lines.push_back(Line(name, type, tensor.sizes(), tensor.strides()));
  }
  return lines;
}

std::vector<std::string> FieldLines(const Dataset& dataset, const Model& model,
                                    int64_t batch_size) {
  std::map<std::string, Field> sorted;  // Sorted by name, as in Batch.
  for (const Field& field : dataset.fields()) sorted[field.name] = field;
  for (const Field& field : model.drawn()) sorted[field.name] = field;
  std::vector<std::string> lines;
  for (const auto& [name, field] : sorted) {
    std::vector<int64_t> shape = {batch_size};
    shape.insert(shape.end(), field.shape.begin(), field.shape.end());
    std::vector<int64_t> strides(shape.size(), 1);
    for (size_t i = shape.size() - 1; i > 0; --i) strides[i - 1] = strides[i] * shape[i];
    lines.push_back(Line(name, ToScalarType(field.type), shape, strides));
  }
  return lines;
}

// Rejects jobs whose steps cannot be compiled or need the loss of each example.
absl::Status CheckCompilable(const JobSpec& spec, const Model& model, const Dataset& dataset,
                             training::v1::PrecisionMode mode) {
  if (model.parameters().front().second.is_cuda()) {
    return absl::UnimplementedError("steps are compiled for CPUs");
  }
  if (!model.supports(mode)) {
    return absl::UnimplementedError("the exported module has no graph of this precision");
  }
  if (spec.dataset().sampling().kind() == training::v1::SAMPLING_KIND_PRIORITIZED) {
    return absl::UnimplementedError(
        "prioritized sampling needs the loss of each example, which a compiled step does not give");
  }
  for (const Field& field : dataset.fields()) {
    if (field.name != "weight") continue;
    return absl::UnimplementedError("the dataset weighs the loss of each example");
  }
  return absl::OkStatus();
}

// Returns the part of the model that determines the loss, without the paths of weights and data.
ModelSpec WithoutPaths(ModelSpec model) {
  model.clear_initial_weights();
  if (model.has_exported()) model.mutable_exported()->clear_path();
  return model;
}

}  // namespace

absl::StatusOr<StepDescription> DescribeStep(const JobSpec& spec, const Model& model,
                                             const Dataset& dataset,
                                             training::v1::PrecisionMode mode) {
  const NamedTensors parameters = model.parameters();
  if (absl::Status status = CheckCompilable(spec, model, dataset, mode); !status.ok()) {
    return status;
  }
  const int64_t batch_size = spec.training().batch_size();
  std::vector<std::string> items = {
      absl::StrCat("\"format\": ", kStepFormat),
      absl::StrCat("\"torch\": \"", TORCH_VERSION, "\""),
      absl::StrCat("\"device\": \"", parameters.front().second.device().str(), "\""),
      absl::StrCat("\"processor\": \"", at::get_cpu_capability(), "\""),
      absl::StrCat("\"processor_flags\": \"", ProcessorFlags(), "\""),
      absl::StrCat("\"mode\": \"", ShortEnumName(mode), "\""),
      absl::StrCat("\"model\": ", Json(WithoutPaths(spec.model()))),
      absl::StrCat("\"batch_size\": ", batch_size),
      List("parameters", Lines(parameters, FormatOf(mode).weights)),
      List("buffers", Lines(model.buffers(), at::kFloat)),
      List("fields", FieldLines(dataset, model, batch_size))};
  const std::string module = ModuleFile(spec.model());
  if (!module.empty()) {
    // Hash the whole file: state that the module keeps outside of parameters and buffers is part of
    // the code.
    items.push_back(absl::StrCat("\"module\": \"", Sha256HexOfFile(module), "\""));
  }
  StepDescription description;
  description.text = absl::StrCat("{\n", absl::StrJoin(items, ",\n"), "\n}\n");
  description.key = Sha256Hex(description.text);
  return description;
}

}  // namespace genesis
