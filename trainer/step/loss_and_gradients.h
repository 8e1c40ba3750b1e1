#pragma once

#include <torch/torch.h>

#include <cstdint>
#include <optional>

#include "trainer/compiled/compiled_step.h"
#include "trainer/models/base/model.h"

namespace genesis {

// Forward and backward of one micro-batch: by a compiled step if the mode has one that fits the
// batch, otherwise by the model's joint graph if it has one, otherwise by the model and autograd.
// Callers see no difference.
//
// Owner: the train step; the model outlives it. Threads: one. Failure: exceptions of LibTorch.
class LossAndGradients {
 public:
  explicit LossAndGradients(Model& model);

  // Sets the format of the next micro-batches. `compiled` may be null, and outlives its use.
  void Use(std::optional<torch::ScalarType> autocast, CompiledStep* compiled);

  struct Share {
    double factor = 1;          // Factor of the loss.
    int64_t micro_batches = 1;  // Divisor of the loss.
    torch::Tensor scale;        // Undefined if the loss has no scale.
  };
  // Returns the detached loss of the batch with its share applied, without the scale. Adds the
  // gradients of the scaled loss to those of the parameters. `unusual` requests eager execution,
  // after which the model's layers can be inspected.
  torch::Tensor Add(const Batch& batch, const Share& share, bool unusual);

 private:
  torch::Tensor AddEager(const Batch& batch, const Share& share);
  // Runs the compiled step, or without one the model's joint graph.
  torch::Tensor AddJoint(const Batch& batch, const Share& share, CompiledStep* compiled);

  Model& model_;
  std::optional<torch::ScalarType> autocast_;
  CompiledStep* compiled_ = nullptr;
  const torch::Tensor one_;
};

}  // namespace genesis
