#pragma once

#include <torch/script.h>

#include <cstdint>
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

// A KeptModule is a scope in which a scripted module may be run for a look; at its end all that the
// module keeps besides parameters is as before, and those of `besides`: buffers, attributes of any
// type, whether it is in train mode, in all its submodules. Lists are other ones then, of the same
// tensors.
//
// Owner: a scope. Threads: the calling one. Failure: exceptions of LibTorch when it is made.
class KeptModule {
 public:
  KeptModule(const torch::jit::Module& module, const std::vector<torch::Tensor>& besides);
  ~KeptModule();
  KeptModule(const KeptModule&) = delete;
  KeptModule& operator=(const KeptModule&) = delete;

 private:
  struct Slot {
    c10::intrusive_ptr<c10::ivalue::Object> object;
    size_t number;
    c10::IValue value;
  };
  std::vector<Slot> slots_;
  // And what was in them. Each is put back into its own memory, which others may share.
  std::vector<std::pair<torch::Tensor, torch::Tensor>> tensors_;
};

// The numbers and tensors that a module keeps in attributes, which its state_dict() does not have:
// a number as int64, float64 or bool without dimensions. Copies, on the CPU.
NamedTensors ModuleAttributes(const torch::jit::Module& module);

// Puts those back that the module has, tensors on the device where they are, or on `device` where
// there is none yet. A tensor that is so already stays: it may be a buffer, too, or a view of one.
void PutModuleAttributes(const torch::jit::Module& module, const NamedTensors& attributes,
                         torch::Device device);

}  // namespace genesis
