#pragma once

#include <ATen/record_function.h>
#include <torch/script.h>

#include <cstdint>
#include <vector>

#include "trainer/models/kept_state.h"

namespace genesis {

// While it lives the module is in eval mode, without gradients, and draws from generators that are
// seeded by a constant; after it everything is as it was. Whatever the user's module does, an
// evaluation says the same twice and the training before and after it is the same run.
//
// Owner: a scope; the module outlives it. Threads: the calling one. Failure: none.
class ScriptedEvaluation {
 public:
  // `besides` are parameters that forward changes.
  ScriptedEvaluation(torch::jit::Module& module, torch::Device device,
                     const std::vector<torch::Tensor>& besides);
  ScriptedEvaluation(const ScriptedEvaluation&) = delete;
  ScriptedEvaluation& operator=(const ScriptedEvaluation&) = delete;

 private:
  const torch::NoGradGuard no_grad_;
  const KeptModule kept_module_;
  KeptGenerators kept_generators_;
};

// Adds up the floating-point operations of the matrix products and convolutions that the calling
// thread runs while it lives.
class OperationCounter {
 public:
  OperationCounter();
  ~OperationCounter() { at::removeCallback(handle_); }
  OperationCounter(const OperationCounter&) = delete;
  OperationCounter& operator=(const OperationCounter&) = delete;

  int64_t operations() const;

 private:
  at::CallbackHandle handle_;
};

// Notes what the cross-entropies that the calling thread computes while it lives divide by: the
// labels that are not ignored, or their weights.
class DivisorWatch {
 public:
  DivisorWatch();
  ~DivisorWatch() { at::removeCallback(handle_); }
  DivisorWatch(const DivisorWatch&) = delete;
  DivisorWatch& operator=(const DivisorWatch&) = delete;

  // Where `loss` is what one of them returned; else undefined.
  torch::Tensor Of(const torch::Tensor& loss) const;

 private:
  at::CallbackHandle handle_;
};

}  // namespace genesis
