#pragma once

#include <torch/torch.h>

#include <cstdint>
#include <map>
#include <vector>

#include "trainer/models/base/model.h"

namespace genesis {

// A KeptGenerators is a scope in which the calling thread may draw from torch's generators of the
// CPU and of `device`. Its destructor restores their states.
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

// A TensorCopies holds the values of some tensors and restores them in the same memory. Tensors of
// one type are copied together, so that a GPU runs few kernels.
//
// Requires tensors that keep their shape and type, and whose elements do not share memory.
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
    torch::Tensor flat;                 // The elements of `tensors`, concatenated.
    std::vector<torch::Tensor> before;  // Views of `flat` in the original shapes.
  };
  std::map<torch::ScalarType, Copied> copied_;
};

}  // namespace genesis
