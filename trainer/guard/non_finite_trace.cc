#include "trainer/guard/non_finite_trace.h"

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"

namespace genesis {
namespace {

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

// Returns the module of a parameter: "encoder.0" for "encoder.0.weight".
std::string ModuleOf(const std::string& parameter) {
  const size_t dot = parameter.rfind('.');
  return dot == std::string::npos ? parameter : parameter.substr(0, dot);
}

// The result of checking an operator's inputs before it runs, because it may overwrite them.
struct Inputs : public at::ObserverContext {
  bool finite = true;
};

}  // namespace

NonFiniteTrace::NonFiniteTrace(const NamedTensors& parameters) : watch_(*this) {
  for (const auto& [name, tensor] : parameters) {
    modules_.emplace(tensor.storage().data(), ModuleOf(name));
  }
}

std::unique_ptr<at::ObserverContext> NonFiniteTrace::OnStart(const at::RecordFunction& function) {
  if (looking_ || !found_.empty()) return nullptr;
  // Other functions, such as the steps of the autograd engine, have no inputs to check.
  if (!absl::StartsWith(function.name(), "aten::")) return nullptr;
  looking_ = true;
  auto inputs = std::make_unique<Inputs>();
  ForEachTensor(function.inputs(), [&](const at::Tensor& tensor) {
    if (!tensor.defined() || !tensor.has_storage()) return;
    const auto module = modules_.find(tensor.storage().data());
    if (module != modules_.end()) last_module_ = module->second;
    inputs->finite = inputs->finite && !IsNonFinite(tensor);
  });
  looking_ = false;
  return inputs;
}

void NonFiniteTrace::OnEnd(const at::RecordFunction& function, at::ObserverContext* context) {
  if (looking_ || !found_.empty() || context == nullptr) return;
  // Uninitialized memory may hold any value.
  const std::string name = function.name();
  const bool unwritten =
      absl::StrContains(name, "empty") || name == "aten::resize_" || name == "aten::set_";
  if (!static_cast<Inputs*>(context)->finite || unwritten) return;
  looking_ = true;
  bool bad = false;
  ForEachTensor(function.outputs(),
                [&](const at::Tensor& tensor) { bad = bad || IsNonFinite(tensor); });
  if (bad) found_ = last_module_.empty() ? name : absl::StrCat(last_module_, " (", name, ")");
  looking_ = false;
}

}  // namespace genesis
