#include "trainer/models/kept_state.h"

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/Context.h>
#include <ATen/MemoryOverlap.h>

#include <functional>
#include <map>
#include <mutex>
#include <string>

namespace genesis {
namespace {

using ObjectPtr = c10::intrusive_ptr<c10::ivalue::Object>;
using Visit = std::function<void(const ObjectPtr& object, size_t number, const std::string& name)>;

// Every slot of the module and its submodules but those of parameters.
void VisitSlots(const ObjectPtr& object, const std::string& prefix, const Visit& visit) {
  const c10::ClassTypePtr type = object->type();
  for (size_t i = 0; i < type->numAttributes(); ++i) {
    const c10::IValue& value = object->getSlot(i);
    const std::string name = prefix + type->getAttributeName(i);
    if (value.isModule()) {
      VisitSlots(value.toObject(), name + ".", visit);
    } else if (!type->is_parameter(i)) {
      visit(object, i, name);
    }
  }
}

c10::IValue CopyOf(const c10::IValue& value, c10::IValue::HashIdentityIValueMap& copies) {
  try {
    return value.deepcopy(copies);
  } catch (const c10::Error&) {
    return value;  // An object of C++ code that knows no copies.
  }
}

// The value kept in a checkpoint; undefined for one of another type, or in the state_dict().
torch::Tensor Encoded(const ObjectPtr& object, size_t number) {
  const c10::IValue& value = object->getSlot(number);
  if (object->type()->is_buffer(number) || object->type()->getAttributeName(number) == "training") {
    return {};
  }
  if (value.isTensor() && value.toTensor().defined()) {
    return value.toTensor().detach().to(at::kCPU, /*non_blocking=*/false, /*copy=*/true);
  }
  if (value.isInt()) return torch::tensor(value.toInt(), at::kLong);
  if (value.isDouble()) return torch::tensor(value.toDouble(), at::kDouble);
  if (value.isBool()) return torch::tensor(value.toBool(), at::kBool);
  return {};
}

c10::IValue Decoded(const torch::Tensor& saved, bool is_tensor, const c10::IValue& before,
                    torch::Device device) {
  if (is_tensor) {
    const bool placed = before.isTensor() && before.toTensor().defined();
    return saved.to(placed ? before.toTensor().device() : device, /*non_blocking=*/false,
                    /*copy=*/true);
  }
  if (saved.numel() != 1) return before;
  if (saved.scalar_type() == at::kBool) return saved.item<bool>();
  if (saved.scalar_type() == at::kDouble) return saved.item<double>();
  return saved.item<int64_t>();
}

bool IsSo(const c10::IValue& value, const torch::Tensor& saved) {
  if (!value.isTensor() || !value.toTensor().defined()) return false;
  const torch::Tensor now = value.toTensor().detach().to(at::kCPU);
  return now.scalar_type() == saved.scalar_type() && torch::equal(now, saved);
}

}  // namespace

KeptGenerators::KeptGenerators(torch::Device device) {
  const auto take = [this](at::Generator generator) {
    const std::lock_guard<std::mutex> lock(generator.mutex());
    saved_.push_back({generator, generator.get_state()});
  };
  take(at::detail::getDefaultCPUGenerator());
  if (!device.is_cpu()) take(at::globalContext().defaultGenerator(device));
}

KeptGenerators::~KeptGenerators() {
  for (Saved& saved : saved_) {
    const std::lock_guard<std::mutex> lock(saved.generator.mutex());
    saved.generator.set_state(saved.state);
  }
}

void KeptGenerators::Seed(uint64_t seed) {
  for (Saved& saved : saved_) {
    const std::lock_guard<std::mutex> lock(saved.generator.mutex());
    saved.generator.set_current_seed(seed);
  }
}

KeptModule::KeptModule(const torch::jit::Module& module,
                       const std::vector<torch::Tensor>& besides) {
  const torch::NoGradGuard no_grad;
  for (const torch::Tensor& tensor : besides) tensors_.emplace_back(tensor, tensor.clone());
  // A copy of a list holds the tensors of the list: recurrent layers of torch compute with weights
  // that a list holds, a list may hold views of a buffer, and those of a copy would be others.
  c10::IValue::HashIdentityIValueMap copies;
  for (const torch::Tensor& parameter : module.parameters()) copies.emplace(parameter, parameter);
  const auto keep = [&](const c10::IValue& value) {
    if (!value.isTensor() || !value.toTensor().defined()) return false;
    if (copies.emplace(value, value).second) {
      tensors_.emplace_back(value.toTensor(), value.toTensor().detach().clone());
    }
    return false;
  };
  VisitSlots(module._ivalue(), "", [&](const ObjectPtr& object, size_t number, const auto&) {
    const c10::IValue& value = object->getSlot(number);
    value.visit(keep);
    slots_.push_back({object, number, CopyOf(value, copies)});
  });
}

KeptModule::~KeptModule() {
  const torch::NoGradGuard no_grad;
  for (const Slot& slot : slots_) slot.object->setSlot(slot.number, slot.value);
  for (auto& [own, before] : tensors_) {
    if (own.sizes() == before.sizes() && own.scalar_type() == before.scalar_type() &&
        at::has_internal_overlap(own) != at::MemOverlap::Yes) {
      own.copy_(before);
    } else {
      own.set_data(before);
    }
  }
}

NamedTensors ModuleAttributes(const torch::jit::Module& module) {
  NamedTensors attributes;
  VisitSlots(module._ivalue(), "",
             [&](const ObjectPtr& object, size_t number, const std::string& name) {
               torch::Tensor encoded = Encoded(object, number);
               if (encoded.defined()) attributes.emplace_back(name, std::move(encoded));
             });
  return attributes;
}

void PutModuleAttributes(const torch::jit::Module& module, const NamedTensors& attributes,
                         torch::Device device) {
  const std::map<std::string, torch::Tensor> saved(attributes.begin(), attributes.end());
  VisitSlots(
      module._ivalue(), "", [&](const ObjectPtr& object, size_t number, const std::string& name) {
        const auto found = saved.find(name);
        if (found == saved.end()) return;
        const c10::TypePtr type = object->type()->getAttribute(number);
        const bool is_tensor = c10::TensorType::get()->isSubtypeOf(*type);
        if (is_tensor && IsSo(object->getSlot(number), found->second)) return;
        c10::IValue value = Decoded(found->second, is_tensor, object->getSlot(number), device);
        // A checkpoint may be of a module with another attribute of that name.
        if (value.type()->isSubtypeOf(*type)) object->setSlot(number, std::move(value));
      });
}

}  // namespace genesis
