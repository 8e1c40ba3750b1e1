#pragma once

#include <torch/script.h>

#include <cstdint>
#include <map>
#include <memory>
#include <utility>
#include <vector>

#include "trainer/models/model.h"

namespace genesis {

// A KeptGenerators is a scope in which the calling thread may draw from torch's generators of the
// CPU and of `device`. Its end restores them.
//
// Owner: a scope. Threads: the calling one. Failure: none.
class KeptGenerators {
 public:
  explicit KeptGenerators(torch::Device device);
  ~KeptGenerators();
  KeptGenerators(const KeptGenerators&) = delete;
  KeptGenerators& operator=(const KeptGenerators&) = delete;

  void Seed(uint64_t seed);

 private:
  struct Saved {
    at::Generator generator;
    at::Tensor state;
  };
  std::vector<Saved> saved_;
};

// A TensorCopies holds the values of some tensors and restores them in the same memory, because
// other tensors may share it. Tensors of one type are copied together, so that a GPU runs few
// kernels.
//
// Owner: the caller. Threads: one. Failure: exceptions of LibTorch.
class TensorCopies : public ModelState {
 public:
  explicit TensorCopies(const std::vector<torch::Tensor>& tensors);
  void PutBack() const override;
  void PutBackWhere(const torch::Tensor& condition) const override;

 private:
  // Tensors of one type.
  struct Copied {
    std::vector<torch::Tensor> tensors;
    std::vector<std::vector<int64_t>> sizes;
    torch::Tensor flat;                 // Their elements, concatenated.
    std::vector<torch::Tensor> before;  // Views of it in the original shapes.
  };
  std::map<torch::ScalarType, Copied> copied_;
  // Sparse tensors, which are copied individually.
  std::vector<std::pair<torch::Tensor, torch::Tensor>> others_;
};

// A ModuleState is the state of a scripted module and its submodules other than parameters:
// buffers, attributes of any type, train mode; and some additional tensors `besides`. Restored
// lists are new objects with the same tensors.
//
// Owner: the caller. Threads: one. Failure: exceptions of LibTorch.
class ModuleState : public ModelState {
 public:
  ModuleState(const torch::jit::Module& module, const std::vector<torch::Tensor>& besides);
  void PutBack() const override;
  void PutBackWhere(const torch::Tensor& condition) const override;

 private:
  struct Slot {
    c10::intrusive_ptr<c10::ivalue::Object> object;
    size_t number;
    c10::IValue value;
  };
  std::vector<Slot> slots_;
  std::unique_ptr<TensorCopies> tensors_;  // The saved values.
};

// A KeptModule is a scope in which a scripted module may run without effect: its end restores the
// module's state (ModuleState).
//
// Owner: a scope. Threads: the calling one. Failure: exceptions of LibTorch from the constructor.
class KeptModule {
 public:
  KeptModule(const torch::jit::Module& module, const std::vector<torch::Tensor>& besides)
      : state_(module, besides) {}
  ~KeptModule() { state_.PutBack(); }
  KeptModule(const KeptModule&) = delete;
  KeptModule& operator=(const KeptModule&) = delete;

 private:
  const ModuleState state_;
};

// Returns the numbers and tensors in attributes of a module, which its state_dict() lacks: a number
// as int64, float64 or bool without dimensions. Copies, on the CPU.
NamedTensors ModuleAttributes(const torch::jit::Module& module);

// Restores the attributes that the module has: tensors on their current device, or on `device` if
// there is none yet. A tensor that already has the value is kept because it may also be a buffer,
// or a view of one.
void PutModuleAttributes(const torch::jit::Module& module, const NamedTensors& attributes,
                         torch::Device device);

}  // namespace genesis
