#include "trainer/models/base/kept_state.h"

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/Context.h>

#include <memory>
#include <mutex>

namespace genesis {
namespace {

std::vector<torch::Tensor> Flattened(const std::vector<torch::Tensor>& tensors) {
  std::vector<torch::Tensor> flat;
  for (const torch::Tensor& tensor : tensors) flat.push_back(tensor.detach().reshape({-1}));
  return flat;
}

// Splits a concatenation of flattened tensors into views of the given sizes.
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
  for (const auto& [type, copied] : copied_) at::_foreach_copy_(copied.tensors, copied.before);
}

void TensorCopies::PutBackWhere(const torch::Tensor& condition) const {
  if (condition.is_cpu()) {
    if (condition.const_data_ptr<float>()[0] != 0) PutBack();
    return;
  }
  const torch::NoGradGuard no_grad;
  const torch::Tensor chosen = condition != 0;
  for (const auto& [type, copied] : copied_) {
    const torch::Tensor flat = at::where(chosen, copied.flat, at::cat(Flattened(copied.tensors)));
    at::_foreach_copy_(copied.tensors, Parts(flat, copied.sizes));
  }
}

}  // namespace genesis
