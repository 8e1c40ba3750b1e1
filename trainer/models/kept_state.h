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
// CPU and of `device`; at its end they are as before.
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

// A TensorCopies has what was in some tensors, which it puts back into their own memory, as others
// may share it. Tensors of one type are one copy, so that a GPU has few kernels to run.
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
    torch::Tensor flat;                 // Their elements, of one behind those of the other.
    std::vector<torch::Tensor> before;  // Its parts, each as its tensor was.
  };
  std::map<torch::ScalarType, Copied> copied_;
  // Sparse tensors, which are copied one by one.
  std::vector<std::pair<torch::Tensor, torch::Tensor>> others_;
};

// A ModuleState is what a scripted module keeps besides parameters, and some tensors `besides`:
// buffers, attributes of any type, whether it is in train mode, in all its submodules. Lists are
// other ones once they are put back, of the same tensors.
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
  std::unique_ptr<TensorCopies> tensors_;  // What was in them.
};

// A KeptModule is a scope in which a scripted module may be run for a look; at its end all that the
// module keeps is as before (ModuleState).
//
// Owner: a scope. Threads: the calling one. Failure: exceptions of LibTorch when it is made.
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

// The numbers and tensors that a module keeps in attributes, which its state_dict() does not have:
// a number as int64, float64 or bool without dimensions. Copies, on the CPU.
NamedTensors ModuleAttributes(const torch::jit::Module& module);

// Puts those back that the module has, tensors on the device where they are, or on `device` where
// there is none yet. A tensor that is so already stays: it may be a buffer, too, or a view of one.
void PutModuleAttributes(const torch::jit::Module& module, const NamedTensors& attributes,
                         torch::Device device);

}  // namespace genesis
