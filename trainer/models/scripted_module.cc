#include "trainer/models/scripted_module.h"

#include <exception>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "trainer/formats/zip_archive.h"

namespace genesis {
namespace {

constexpr char kHowTo[] = "make it with torch.jit.script(module).save(path)";

absl::Status Fault(const std::string& path, const std::string& what) {
  return absl::InvalidArgumentError(absl::StrCat("model.torchscript.path: ", path, " ", what));
}

// Torch's message about a file of another kind does not help anybody.
absl::Status CheckKind(const std::string& path) {
  const absl::StatusOr<ZipArchive> archive = ZipArchive::Open(path);
  if (absl::IsNotFound(archive.status())) {
    return Fault(path,
                 "does not exist; give the path of a TorchScript file below the dataset root");
  }
  if (absl::IsPermissionDenied(archive.status())) {
    return Fault(path, "may not be read; give the worker's user leave to read it");
  }
  if (!archive.ok()) {
    return Fault(
        path, absl::StrCat("is no TorchScript file: ", archive.status().message(), "; ", kHowTo));
  }
  bool constants = false;
  bool data = false;
  bool code = false;
  for (const std::string& name : archive->names()) {
    constants = constants || absl::EndsWith(name, "/constants.pkl");
    data = data || absl::EndsWith(name, "/data.pkl");
    code = code || absl::StrContains(name, "/code/");
  }
  if (constants && code) return absl::OkStatus();
  if (data) {
    return Fault(path, absl::StrCat("is what torch.save wrote, a state dict or a pickled module, "
                                    "and no TorchScript file; ",
                                    kHowTo, " (a state dict can be model.initial_weights)"));
  }
  return Fault(path, absl::StrCat("is a zip file but no TorchScript file; ", kHowTo));
}

// Reduced precision is the trainer's business: whatever the file holds, training begins in float32.
// And a parameter that is a part of a larger tensor gets memory of its own, which an optimizer can
// walk over.
void UseFloat32(const torch::jit::Module& module) {
  const torch::NoGradGuard no_grad;
  const auto convert = [](torch::Tensor tensor) {
    if (tensor.is_floating_point() && tensor.scalar_type() != torch::kFloat) {
      tensor.set_data(tensor.to(torch::kFloat));
    }
  };
  for (torch::Tensor parameter : module.parameters()) {
    convert(parameter);
    if (!parameter.is_non_overlapping_and_dense()) parameter.set_data(parameter.contiguous());
  }
  for (const torch::Tensor& buffer : module.buffers()) convert(buffer);
}

// Parameters and buffers; "" where none is complex.
std::string FirstComplex(const torch::jit::Module& module) {
  const auto parameters = module.named_parameters();
  for (const auto& entry : parameters) {
    if (entry.value.is_complex()) return entry.name;
  }
  const auto buffers = module.named_buffers();
  for (const auto& entry : buffers) {
    if (entry.value.is_complex()) return entry.name;
  }
  return "";
}

}  // namespace

std::string LastLine(const std::string& message) {
  std::string last;
  for (absl::string_view line : absl::StrSplit(message, '\n')) {
    line = absl::StripAsciiWhitespace(line);
    // A trace of C++ frames may follow.
    if (absl::StartsWith(line, "Exception raised from")) break;
    if (!line.empty()) last = std::string(line);
  }
  return last;
}

absl::StatusOr<torch::jit::Module> LoadScriptedModule(const std::string& path) {
  if (absl::Status kind = CheckKind(path); !kind.ok()) return kind;
  torch::jit::Module module;
  try {
    module = torch::jit::load(path, torch::kCPU);
  } catch (const std::exception& error) {
    return Fault(path, absl::StrCat("cannot be loaded: ", LastLine(error.what()), "; ", kHowTo,
                                    " and the torch version of the worker or an older one"));
  }
  if (!module.find_method("forward")) {
    return Fault(path, "has no forward method; define one and script the module again");
  }
  bool trains = false;
  for (const torch::Tensor& parameter : module.parameters()) {
    trains = trains || (parameter.requires_grad() && parameter.is_floating_point());
  }
  if (!trains) {
    return Fault(path,
                 "has no parameters to train; torch.jit.freeze and optimize_for_inference turn "
                 "them into constants, and requires_grad False keeps them as they are");
  }
  if (const std::string name = FirstComplex(module); !name.empty()) {
    return Fault(path, absl::StrCat("holds ", name,
                                    " in complex numbers, which a checkpoint has not; keep "
                                    "torch.view_as_real of it"));
  }
  UseFloat32(module);
  module.train();
  return module;
}

std::vector<std::string> ForwardInputs(const training::v1::TorchScriptSpec& spec,
                                       const Dataset& dataset) {
  if (spec.inputs_size() > 0) return {spec.inputs().begin(), spec.inputs().end()};
  std::vector<std::string> inputs;
  for (const Field& field : dataset.fields()) {
    if (field.name != spec.target() && field.name != "weight") inputs.push_back(field.name);
  }
  return inputs;
}

absl::Status CheckForward(const torch::jit::Module& module, const std::string& path,
                          const std::vector<std::string>& inputs) {
  const std::vector<c10::Argument>& arguments =
      module.get_method("forward").function().getSchema().arguments();
  size_t required = 0;
  std::vector<std::string> names;
  for (size_t i = 1; i < arguments.size(); ++i) {  // The first is self.
    if (!arguments[i].default_value()) ++required;
    names.push_back(arguments[i].name());
  }
  if (inputs.size() < required || inputs.size() > names.size()) {
    return Fault(path,
                 absl::StrCat("takes ", names.size(), " inputs (", absl::StrJoin(names, ", "),
                              "), the job gives ", inputs.size(), " (", absl::StrJoin(inputs, ", "),
                              "); name the fields in model.torchscript.inputs"));
  }
  for (size_t i = 0; i < inputs.size(); ++i) {
    const c10::TypePtr& type = arguments[i + 1].type();
    if (c10::TensorType::get()->isSubtypeOf(*type)) continue;
    return Fault(path, absl::StrCat("takes ", names[i], " as ", type->str(),
                                    ", the job gives the "
                                    "field ",
                                    inputs[i], ", a tensor; let forward take a Tensor"));
  }
  return absl::OkStatus();
}

}  // namespace genesis
