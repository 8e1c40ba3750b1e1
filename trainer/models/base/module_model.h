#pragma once

#include <torch/torch.h>

#include <memory>
#include <optional>
#include <string>

#include "trainer/models/base/model.h"

namespace genesis {

// The base of built-in models: names, device moves, and the mean loss from the losses of the
// examples.
//
// Owner: the run. Threads: one at a time. Failure: exceptions of LibTorch.
class ModuleModel : public Model {
 public:
  NamedTensors parameters() const override { return parameters_; }
  NamedTensors buffers() const override { return buffers_; }
  void To(torch::Device device) override { module_->to(device); }
  torch::Tensor ExampleLosses() const override { return example_losses_; }

 protected:
  // Requires that every parameter and buffer is registered; later ones are ignored.
  explicit ModuleModel(std::shared_ptr<torch::nn::Module> module);

  // Same as InputType(), but without the list of parameters, because every step calls it.
  torch::ScalarType format() const { return parameters_.front().second.scalar_type(); }

  // Keeps the losses of the examples [B] for ExampleLosses().
  void KeepExampleLosses(const torch::Tensor& losses) { example_losses_ = losses.detach(); }

  // Returns the mean of `example_losses` [B], each times its weight if the batch has weights. Calls
  // KeepExampleLosses.
  torch::Tensor MeanLoss(const torch::Tensor& example_losses, const Batch& batch);

 private:
  const std::shared_ptr<torch::nn::Module> module_;
  NamedTensors parameters_;
  NamedTensors buffers_;
  torch::Tensor example_losses_;
};

// Returns the weights of the examples' losses [B]; nullopt if the batch has no weights.
std::optional<torch::Tensor> Weights(const Batch& batch);

// Returns the sum of a metric over the examples, in float64. `metrics` has any shape [B, ...], and
// is first averaged over all dimensions but the first.
MetricSum SumOf(const std::string& name, const torch::Tensor& metrics);

}  // namespace genesis
