#pragma once

#include <torch/torch.h>

#include <memory>
#include <optional>
#include <string>

#include "trainer/models/model.h"

namespace genesis {

// The base of models that are modules of ours: names, moving, and how a mean loss is made of the
// losses of the examples.
//
// Owner: the run. Threads: one at a time. Failure: exceptions of LibTorch.
class ModuleModel : public Model {
 public:
  NamedTensors parameters() const override { return parameters_; }
  NamedTensors buffers() const override { return buffers_; }
  void To(torch::Device device) override { module_->to(device); }
  torch::Tensor ExampleLosses() const override { return example_losses_; }

 protected:
  // Requires that every parameter and buffer is registered: later ones stay unknown.
  explicit ModuleModel(std::shared_ptr<torch::nn::Module> module);

  // InputType() without the list of parameters, for it is asked at every step.
  torch::ScalarType format() const { return parameters_.front().second.scalar_type(); }

  // Mean of `example_losses` [B], each times its weight where the batch has weights; keeps them for
  // ExampleLosses().
  torch::Tensor MeanLoss(const torch::Tensor& example_losses, const Batch& batch);

 private:
  const std::shared_ptr<torch::nn::Module> module_;
  NamedTensors parameters_;
  NamedTensors buffers_;
  torch::Tensor example_losses_;
};

// The factor of each example's loss [B]; nullopt where the batch has none.
std::optional<torch::Tensor> Weights(const Batch& batch);

// Sum over the examples, in float64, of a figure that was measured for each: any shape [B, ...], of
// which the mean over all but the first dimension counts.
MetricSum SumOf(const std::string& name, const torch::Tensor& metrics);

// The loss of a batch that is a mean over what counts of it, `divisor` of them, e.g. labels that
// are not ignored. That of a batch in which nothing counts, 0 / 0, adds nothing to others.
MetricSum MeanOver(const torch::Tensor& mean, const torch::Tensor& divisor);

}  // namespace genesis
