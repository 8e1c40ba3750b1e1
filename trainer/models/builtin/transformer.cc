#include "trainer/models/builtin/transformer.h"

#include <cmath>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "trainer/kernels/linear_cross_entropy.h"
#include "trainer/models/base/dataset_fields.h"
#include "trainer/precision/autocast_guard.h"

namespace genesis {
namespace {

namespace nn = torch::nn;
namespace F = torch::nn::functional;
using training::v1::TransformerSpec;

class Attention : public nn::Module {
 public:
  Attention(int64_t width, int64_t heads)
      : heads_(heads),
        query_key_value_(register_module("query_key_value", nn::Linear(width, 3 * width))),
        projection_(register_module("projection", nn::Linear(width, width))) {}

  torch::Tensor forward(const torch::Tensor& x) {
    const int64_t width = x.size(2);
    const auto by_head = [&](const torch::Tensor& t) {
      return t.view({x.size(0), x.size(1), heads_, width / heads_}).transpose(1, 2);
    };
    const std::vector<torch::Tensor> parts = query_key_value_->forward(x).split(width, 2);
    const torch::Tensor seen =
        at::scaled_dot_product_attention(by_head(parts[0]), by_head(parts[1]), by_head(parts[2]),
                                         /*attn_mask=*/{}, /*dropout_p=*/0.0, /*is_causal=*/true);
    return projection_->forward(seen.transpose(1, 2).reshape(x.sizes()));
  }

 private:
  const int64_t heads_;
  nn::Linear query_key_value_, projection_;
};

class Block : public nn::Module {
 public:
  Block(int64_t width, int64_t heads)
      : attention_norm_(register_module("attention_norm", Norm(width))),
        attention_(register_module("attention", std::make_shared<Attention>(width, heads))),
        mlp_norm_(register_module("mlp_norm", Norm(width))),
        expansion_(register_module("mlp_expansion", nn::Linear(width, 4 * width))),
        projection_(register_module("mlp_projection", nn::Linear(4 * width, width))) {}

  torch::Tensor forward(const torch::Tensor& x) {
    const torch::Tensor middle = x + attention_->forward(attention_norm_->forward(x));
    return middle + projection_->forward(torch::gelu(
                        expansion_->forward(mlp_norm_->forward(middle)), /*approximate=*/"tanh"));
  }

  static nn::LayerNorm Norm(int64_t width) { return nn::LayerNorm(nn::LayerNormOptions({width})); }

 private:
  nn::LayerNorm attention_norm_;
  std::shared_ptr<Attention> attention_;
  nn::LayerNorm mlp_norm_;
  nn::Linear expansion_, projection_;
};

}  // namespace

class TransformerModule : public nn::Module {
 public:
  explicit TransformerModule(const TransformerSpec& spec) {
    const int64_t width = spec.embedding_size();
    token_embedding_ =
        register_module("token_embedding", nn::Embedding(spec.vocabulary_size(), width));
    position_embedding_ =
        register_module("position_embedding", nn::Embedding(spec.context_length(), width));
    nn::ModuleList blocks;
    for (int i = 0; i < spec.layers(); ++i) {
      blocks_.push_back(std::make_shared<Block>(width, spec.heads()));
      blocks->push_back(blocks_.back());
    }
    register_module("blocks", blocks);
    norm_ = register_module("norm", Block::Norm(width));
    if (spec.untied_output()) {
      output_ = register_module(
          "lm_head", nn::Linear(nn::LinearOptions(width, spec.vocabulary_size()).bias(false)));
    }
  }

  // Initializes the weights as GPT-2 does: normal with deviation 0.02, less for weights that add to
  // the residual stream, in the order of parameters(). Biases are 0, norms keep their defaults.
  void Initialize() {
    const torch::NoGradGuard no_grad;
    const double residual = 0.02 / std::sqrt(2.0 * static_cast<double>(blocks_.size()));
    for (auto& entry : named_parameters()) {
      if (absl::EndsWith(entry.key(), ".bias")) {
        entry.value().zero_();
      } else if (entry.value().dim() == 2) {
        entry.value().normal_(0.0,
                              absl::EndsWith(entry.key(), "projection.weight") ? residual : 0.02);
      }
    }
  }

  // Returns the input [B, T, D] of the output layer for tokens [B, T].
  torch::Tensor forward(const torch::Tensor& tokens) {
    const torch::Tensor positions =
        torch::arange(tokens.size(1), torch::TensorOptions(torch::kLong).device(tokens.device()));
    torch::Tensor x = token_embedding_->forward(tokens) + position_embedding_->forward(positions);
    for (const auto& block : blocks_) x = block->forward(x);
    return norm_->forward(x);
  }

  // Weight [V, D] of the output layer, which has no bias.
  const torch::Tensor& output_weight() const {
    return output_ ? output_->weight : token_embedding_->weight;
  }

  const nn::Embedding& token_embedding() const { return token_embedding_; }
  const nn::Embedding& position_embedding() const { return position_embedding_; }

 private:
  nn::Embedding token_embedding_{nullptr}, position_embedding_{nullptr};
  std::vector<std::shared_ptr<Block>> blocks_;
  nn::LayerNorm norm_{nullptr};
  nn::Linear output_{nullptr};  // Null if the token embedding is the output layer.
};

absl::StatusOr<std::unique_ptr<Model>> Transformer::Build(const training::v1::JobSpec& spec,
                                                          const Dataset& dataset) {
  const TransformerSpec& model = spec.model().transformer();
  const DatasetFields fields(
      spec, dataset,
      absl::StrCat("model.transformer with context_length ", model.context_length()));
  const auto tokens =
      fields.Shape("tokens", {{"T + 1", model.context_length() + 1}}, {ElementType::kInt64});
  if (!tokens.ok()) return tokens.status();
  auto module = std::make_shared<TransformerModule>(model);
  // Seed here, because the constructors drew weights, which Initialize overwrites.
  torch::manual_seed(spec.training().seed());
  module->Initialize();
  return std::unique_ptr<Model>(new Transformer(std::move(module), model));
}

std::unique_ptr<Transformer> Transformer::BuildFor(const TransformerSpec& spec) {
  return std::unique_ptr<Transformer>(
      new Transformer(std::make_shared<TransformerModule>(spec), spec));
}

torch::Tensor Transformer::NextToken(const torch::Tensor& tokens) {
  return F::linear(module_->forward(tokens).select(1, -1), module_->output_weight());
}

Transformer::Transformer(std::shared_ptr<TransformerModule> module, const TransformerSpec& spec)
    : ModuleModel(module), module_(std::move(module)), spec_(spec) {}

std::vector<std::pair<std::string, std::string>> Transformer::tied() const {
  if (spec_.untied_output()) return {};
  return {{"lm_head.weight", "token_embedding.weight"}};
}

torch::Tensor Transformer::LogitLosses(const torch::Tensor& logits, const torch::Tensor& targets) {
  return F::cross_entropy(logits.to(torch::kFloat), targets,
                          F::CrossEntropyFuncOptions().reduction(torch::kNone));
}

torch::Tensor Transformer::Loss(const Batch& batch, std::optional<torch::ScalarType> autocast) {
  const torch::Tensor& tokens = batch.at("tokens");
  const torch::Tensor targets = tokens.slice(1, 1);
  const bool chunked =
      SuitsLinearCrossEntropy(tokens.device(), targets.numel(), spec_.vocabulary_size());
  torch::Tensor hidden, logits;
  {
    const AutocastGuard guard(tokens.device().type(), autocast);
    hidden = module_->forward(tokens.slice(1, 0, -1));
    if (!chunked) logits = F::linear(hidden, module_->output_weight());
  }
  if (!chunked) {
    const torch::Tensor losses = LogitLosses(logits.flatten(0, 1), targets.flatten());
    return MeanLoss(losses.view(targets.sizes()).mean(1), batch);
  }
  torch::Tensor factors =
      torch::full(targets.sizes(), 1.0 / static_cast<double>(targets.numel()), torch::kFloat);
  if (const auto weights = Weights(batch)) factors.mul_(weights->unsqueeze(1));
  const LinearCrossEntropyLoss found =
      LinearCrossEntropy({.input = hidden.flatten(0, 1),
                          .weight = module_->output_weight(),
                          .target = targets.flatten()},
                         factors.flatten(), autocast.value_or(format()));
  KeepExampleLosses(found.losses.view(targets.sizes()).mean(1));
  return found.loss;
}

void Transformer::AddDerivedMetrics(training::v1::Evaluation& evaluation) const {
  (*evaluation.mutable_metrics())["perplexity"] = std::exp(evaluation.loss());
}

std::vector<MetricSum> Transformer::Evaluate(const Batch& batch) {
  const torch::NoGradGuard no_grad;
  const torch::Tensor& tokens = batch.at("tokens");
  const torch::Tensor targets = tokens.slice(1, 1);
  const torch::Tensor hidden = module_->forward(tokens.slice(1, 0, -1)).flatten(0, 1);
  const int64_t classes = spec_.vocabulary_size();
  const int64_t chunk = SuitsLinearCrossEntropy(tokens.device(), targets.numel(), classes)
                            ? TokensPerChunk(classes)
                            : targets.numel();
  std::vector<torch::Tensor> losses, hits;
  const std::vector<torch::Tensor> parts = targets.flatten().split(chunk);
  for (const torch::Tensor& part : hidden.split(chunk)) {
    const torch::Tensor logits = F::linear(part, module_->output_weight());
    losses.push_back(LogitLosses(logits, parts[losses.size()]));
    hits.push_back(logits.argmax(1).eq(parts[hits.size()]));
  }
  return {SumOf("loss", torch::cat(losses).view(targets.sizes())),
          SumOf("accuracy", torch::cat(hits).view(targets.sizes()))};
}

int64_t Transformer::OperationsPerExample() const {
  int64_t weights = 0;
  for (const auto& entry : parameters()) weights += entry.second.numel();
  // Embeddings are looked up, not multiplied, but a tied one is also the output layer.
  weights -= module_->position_embedding()->weight.numel();
  if (spec_.untied_output()) weights -= module_->token_embedding()->weight.numel();
  // Per token: a multiplication and an addition per weight, and the two products of attention with
  // every position (Chowdhery et al., 2022); once forward and twice backward.
  const int64_t attention =
      int64_t{12} * spec_.layers() * spec_.embedding_size() * spec_.context_length();
  return spec_.context_length() * (6 * weights + attention);
}

}  // namespace genesis
