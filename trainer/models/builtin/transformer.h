#pragma once

#include <torch/torch.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "trainer/models/base/module_model.h"

namespace genesis {

class TransformerModule;

// A decoder-only transformer that predicts the next token: GPT-2 with descriptive names. It has
// pre-norm blocks of causal attention and a GELU network of four times the width, learned
// positions, and an output layer that is the token embedding unless it is untied.
//
// Owner: the run. Threads: one at a time. Failure: exceptions of LibTorch. Tokens outside of the
// vocabulary throw on a CPU, but abort the process on CUDA, so the dataset checks them.
class Transformer : public ModuleModel {
 public:
  // See BuildModel.
  static absl::StatusOr<std::unique_ptr<Model>> Build(const training::v1::JobSpec& spec,
                                                      const Dataset& dataset);

  // Builds the model without data, for predictions. Its weights are not initialized.
  static std::unique_ptr<Transformer> BuildFor(const training::v1::TransformerSpec& spec);

  // Returns the logits [N, V] of the token after the last one of `tokens` [N, T].
  torch::Tensor NextToken(const torch::Tensor& tokens);

  std::vector<std::pair<std::string, std::string>> tied() const override;
  // Returns the mean cross-entropy of the next tokens.
  torch::Tensor Loss(const Batch& batch, std::optional<torch::ScalarType> autocast) override;
  std::vector<MetricSum> Evaluate(const Batch& batch) override;
  // Adds the perplexity.
  void AddDerivedMetrics(training::v1::Evaluation& evaluation) const override;
  int64_t OperationsPerExample() const override;

 private:
  Transformer(std::shared_ptr<TransformerModule> module, const training::v1::TransformerSpec& spec);

  // Returns the cross-entropy of each token, [N], from logits [N, V].
  static torch::Tensor LogitLosses(const torch::Tensor& logits, const torch::Tensor& targets);

  const std::shared_ptr<TransformerModule> module_;
  const training::v1::TransformerSpec spec_;
};

}  // namespace genesis
