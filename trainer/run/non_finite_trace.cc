#include "trainer/run/non_finite_trace.h"

#include <ATen/record_function.h>

#include <memory>
#include <unordered_map>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"

namespace genesis {
namespace {

// What the callback knows. The functions that at::RecordFunction calls carry no context of ours, so
// the one trace of the process is known by name.
struct Watch {
  std::unordered_map<const void*, std::string> modules;  // By the address of a parameter's data.
  std::string last_module;
  std::string found;
  bool looking = false;  // The watch's own operators are not watched.
};
Watch* active = nullptr;

bool IsNonFinite(const at::Tensor& tensor) {
  return tensor.defined() && tensor.is_floating_point() && tensor.numel() > 0 &&
         !at::isfinite(tensor.detach()).all().item<bool>();
}

template <typename Values, typename Use>
void ForEachTensor(const Values& values, const Use& use) {
  for (const c10::IValue& value : values) {
    if (value.isTensor()) use(value.toTensor());
    if (value.isTensorList()) {
      for (const at::Tensor& tensor : value.toTensorVector()) use(tensor);
    }
  }
}

// "encoder.0.weight" is a part of the module "encoder.0".
std::string ModuleOf(const std::string& parameter) {
  const size_t dot = parameter.rfind('.');
  return dot == std::string::npos ? parameter : parameter.substr(0, dot);
}

// Whether the inputs were finite; operators may overwrite them, so it is asked first.
struct Inputs : public at::ObserverContext {
  bool finite = true;
};

std::unique_ptr<at::ObserverContext> OnStart(const at::RecordFunction& function) {
  if (active == nullptr || active->looking || !active->found.empty()) return nullptr;
  // Others, such as the steps of the autograd engine, have no inputs to look at.
  if (!absl::StartsWith(function.name(), "aten::")) return nullptr;
  active->looking = true;
  auto inputs = std::make_unique<Inputs>();
  ForEachTensor(function.inputs(), [&](const at::Tensor& tensor) {
    if (!tensor.defined() || !tensor.has_storage()) return;
    const auto module = active->modules.find(tensor.storage().data());
    if (module != active->modules.end()) active->last_module = module->second;
    inputs->finite = inputs->finite && !IsNonFinite(tensor);
  });
  active->looking = false;
  return inputs;
}

void OnEnd(const at::RecordFunction& function, at::ObserverContext* context) {
  if (active == nullptr || active->looking || !active->found.empty() || context == nullptr) return;
  // Memory that nothing was written to yet may hold anything.
  const std::string name = function.name();
  if (!static_cast<Inputs*>(context)->finite || absl::StrContains(name, "empty")) return;
  active->looking = true;
  bool bad = false;
  ForEachTensor(function.outputs(),
                [&](const at::Tensor& tensor) { bad = bad || IsNonFinite(tensor); });
  if (bad) {
    active->found =
        active->last_module.empty() ? name : absl::StrCat(active->last_module, " (", name, ")");
  }
  active->looking = false;
}

}  // namespace

NonFiniteTrace::NonFiniteTrace(const NamedTensors& parameters) {
  static Watch watch;
  watch = Watch();
  for (const auto& [name, tensor] : parameters) {
    watch.modules.emplace(tensor.storage().data(), ModuleOf(name));
  }
  active = &watch;
  handle_ = at::addThreadLocalCallback(at::RecordFunctionCallback(OnStart, OnEnd)
                                           .needsInputs(true)
                                           .needsOutputs(true)
                                           .scopes({at::RecordScope::FUNCTION}));
}

NonFiniteTrace::~NonFiniteTrace() {
  at::removeCallback(handle_);
  active = nullptr;
}

std::string NonFiniteTrace::Found() { return active == nullptr ? "" : active->found; }

}  // namespace genesis
