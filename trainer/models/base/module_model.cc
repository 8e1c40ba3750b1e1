#include "trainer/models/base/module_model.h"

#include <utility>

namespace genesis {

ModuleModel::ModuleModel(std::shared_ptr<torch::nn::Module> module) : module_(std::move(module)) {
  for (const auto& entry : module_->named_parameters()) {
    parameters_.emplace_back(entry.key(), entry.value());
  }
  for (const auto& entry : module_->named_buffers()) {
    buffers_.emplace_back(entry.key(), entry.value());
  }
}

torch::Tensor ModuleModel::MeanLoss(const torch::Tensor& example_losses, const Batch& batch) {
  KeepExampleLosses(example_losses);
  if (const auto weights = Weights(batch)) return (example_losses * *weights).mean();
  return example_losses.mean();
}

std::optional<torch::Tensor> Weights(const Batch& batch) {
  const auto found = batch.fields.find("weight");
  if (found == batch.fields.end()) return std::nullopt;
  return found->second.reshape({-1});
}

MetricSum SumOf(const std::string& name, const torch::Tensor& metrics) {
  const torch::Tensor wide = metrics.to(torch::kDouble);
  return {name, (wide.dim() > 1 ? wide.flatten(1).mean(1) : wide).sum()};
}

}  // namespace genesis
