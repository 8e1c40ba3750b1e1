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

bool IsDefined(const c10::IValue& value) { return value.isTensor() && value.toTensor().defined(); }

// Visits every slot of the module and its submodules except parameters.
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
    return value;  // A C++ object that cannot be copied.
  }
}

// Returns the value for a checkpoint; undefined for other types, or if it is in the state_dict().
torch::Tensor Encoded(const ObjectPtr& object, size_t number) {
  const c10::IValue& value = object->getSlot(number);
  if (object->type()->is_buffer(number) || object->type()->getAttributeName(number) == "training") {
    return {};
  }
  if (IsDefined(value)) {
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

std::vector<torch::Tensor> Flattened(const std::vector<torch::Tensor>& tensors) {
  std::vector<torch::Tensor> flat;
  for (const torch::Tensor& tensor : tensors) flat.push_back(tensor.detach().reshape({-1}));
  return flat;
}

// Splits a concatenation of Flattened's result.
std::vector<torch::Tensor> Parts(const torch::Tensor& flat,
                                 const std::vector<std::vector<int64_t>>& sizes) {
  std::vector<torch::Tensor> parts;
  int64_t begin = 0;
  for (const std::vector<int64_t>& each : sizes) {
    const int64_t count = c10::multiply_integers(each);
    parts.push_back(flat.narrow(0, begin, count).view(each));
    begin += count;
  }
  return parts;
}

// Returns whether elements can be copied into the tensor in place.
bool Fits(const torch::Tensor& tensor, const std::vector<int64_t>& sizes) {
  return tensor.sizes() == at::IntArrayRef(sizes) &&
         at::has_internal_overlap(tensor) != at::MemOverlap::Yes;
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

std::shared_ptr<const void> Model::KeepState() const {
  std::unique_ptr<ModelState> state = CopyState();
  if (state == nullptr) return nullptr;
  return std::shared_ptr<const ModelState>(state.release(), [](const ModelState* kept) {
    kept->PutBack();
    delete kept;
  });
}

TensorCopies::TensorCopies(const std::vector<torch::Tensor>& tensors) {
  const torch::NoGradGuard no_grad;
  for (const torch::Tensor& tensor : tensors) {
    if (tensor.layout() != at::kStrided) {
      others_.emplace_back(tensor, tensor.clone());
      continue;
    }
    Copied& copied = copied_[tensor.scalar_type()];
    copied.tensors.push_back(tensor);
    copied.sizes.push_back(tensor.sizes().vec());
  }
  for (auto& [type, copied] : copied_) {
    copied.flat = at::cat(Flattened(copied.tensors));
    copied.before = Parts(copied.flat, copied.sizes);
  }
}

void TensorCopies::PutBack() const {
  const torch::NoGradGuard no_grad;
  for (const auto& [type, copied] : copied_) {
    for (size_t i = 0; i < copied.tensors.size(); ++i) {
      torch::Tensor own = copied.tensors[i];
      if (own.scalar_type() == type && Fits(own, copied.sizes[i])) {
        own.copy_(copied.before[i]);
      } else {
        own.set_data(copied.before[i].clone());
      }
    }
  }
  for (auto [own, before] : others_) own.copy_(before);
}

void TensorCopies::PutBackWhere(const torch::Tensor& condition) const {
  if (condition.is_cpu()) {
    if (condition.const_data_ptr<float>()[0] != 0) PutBack();
    return;
  }
  const torch::NoGradGuard no_grad;
  const torch::Tensor chosen = condition != 0;
  for (const auto& [type, copied] : copied_) {
    std::vector<torch::Tensor> own;
    std::vector<torch::Tensor> before;
    std::vector<std::vector<int64_t>> sizes;
    for (size_t i = 0; i < copied.tensors.size(); ++i) {
      if (!Fits(copied.tensors[i], copied.sizes[i])) continue;
      own.push_back(copied.tensors[i]);
      before.push_back(copied.before[i]);
      sizes.push_back(copied.sizes[i]);
    }
    if (own.empty()) continue;
    const bool all = own.size() == copied.tensors.size();
    const torch::Tensor flat =
        at::where(chosen, all ? copied.flat : at::cat(Flattened(before)), at::cat(Flattened(own)));
    at::_foreach_copy_(own, Parts(flat, sizes));
  }
}

ModuleState::ModuleState(const torch::jit::Module& module,
                         const std::vector<torch::Tensor>& besides) {
  const torch::NoGradGuard no_grad;
  std::vector<torch::Tensor> tensors = besides;
  // A copied list keeps the original tensors: recurrent layers of torch compute with weights in a
  // list, and a list may hold views of a buffer. Copied tensors would be detached from them.
  c10::IValue::HashIdentityIValueMap copies;
  for (const torch::Tensor& parameter : module.parameters()) copies.emplace(parameter, parameter);
  const auto keep = [&](const c10::IValue& value) {
    if (!IsDefined(value)) return false;
    if (copies.emplace(value, value).second) tensors.push_back(value.toTensor());
    return false;
  };
  VisitSlots(module._ivalue(), "", [&](const ObjectPtr& object, size_t number, const auto&) {
    const c10::IValue& value = object->getSlot(number);
    value.visit(keep);
    slots_.push_back({object, number, CopyOf(value, copies)});
  });
  tensors_ = std::make_unique<TensorCopies>(tensors);
}

void ModuleState::PutBack() const {
  for (const Slot& slot : slots_) slot.object->setSlot(slot.number, slot.value);
  tensors_->PutBack();
}

void ModuleState::PutBackWhere(const torch::Tensor& condition) const {
  if (condition.is_cpu()) {
    if (condition.const_data_ptr<float>()[0] != 0) PutBack();
    return;
  }
  const torch::NoGradGuard no_grad;
  tensors_->PutBackWhere(condition);
  const torch::Tensor chosen = condition != 0;
  // For tensors that forward has replaced by others.
  for (const Slot& slot : slots_) {
    const c10::IValue& now = slot.object->getSlot(slot.number);
    if (!IsDefined(now) || !IsDefined(slot.value)) continue;
    const torch::Tensor& own = now.toTensor();
    const torch::Tensor& before = slot.value.toTensor();
    if (own.is_same(before) || own.sizes() != before.sizes() ||
        own.scalar_type() != before.scalar_type()) {
      continue;
    }
    slot.object->setSlot(slot.number, at::where(chosen, before, own));
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
