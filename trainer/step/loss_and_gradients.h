#pragma once

#include <torch/torch.h>

#include <cstdint>
#include <optional>

#include "trainer/compiled/compiled_step.h"
#include "trainer/models/model.h"

namespace genesis {

// Forward and backward of one micro-batch: by a compiled step where the mode has one that fits the
// batch, else by the model's joint graph where it has one, else by the model and autograd. Which of
// them it was shows in nothing that follows.
//
// Owner: the train step; the model outlives it. Threads: one. Failure: exceptions of LibTorch.
class LossAndGradients {
 public:
  explicit LossAndGradients(Model& model);

  // The format of the next micro-batches. `compiled` is null for eager, and outlives its use.
  void Use(std::optional<torch::ScalarType> autocast, CompiledStep* compiled);

  struct Share {
    double factor = 1;          // The loss is multiplied by it.
    int64_t micro_batches = 1;  // The loss is divided by it.
    torch::Tensor scale;        // Undefined where the loss has no scale.
  };
  // The loss of the batch, detached, as its share of the step says but for the scale; adds the
  // gradients of the scaled loss to those of the parameters. `unusual` asks for eager, where the
  // model's layers can be looked at afterwards.
  torch::Tensor Add(const Batch& batch, const Share& share, bool unusual);

 private:
  torch::Tensor AddEager(const Batch& batch, const Share& share);
  // By the compiled step, or without one by the model's joint graph.
  torch::Tensor AddJoint(const Batch& batch, const Share& share, CompiledStep* compiled);

  Model& model_;
  std::optional<torch::ScalarType> autocast_;
  CompiledStep* compiled_ = nullptr;
  const torch::Tensor one_;
};

}  // namespace genesis
