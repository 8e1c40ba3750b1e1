#include "trainer/kernels/linear_cross_entropy.h"

#include <torch/csrc/autograd/custom_function.h>
#include <torch/torch.h>

#include <algorithm>
#include <optional>

#include "trainer/kernels/own_kernels.h"

namespace genesis {
namespace {

using at::Tensor;
using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

// Maximum bytes of a chunk's logits in float32. Fewer tokens slow the products down, because each
// chunk reads and writes the gradient of the weight once (docs/benchmarks/optimizations.md).
constexpr int64_t kMaxChunkBytes = int64_t{64} << 20;

// The targets of N tokens. The loss of a token with target t is hard * -log p[t] - sum over classes
// c of soft[c] * log p[c]. Tensors are [N, 1], and 0 where the target is ignored.
struct Targets {
  explicit Targets(const LinearCrossEntropyArguments& of)
      : counted((of.target != of.ignore_index).unsqueeze(1)),
        classes(of.target.unsqueeze(1).masked_fill(~counted, 0)) {
    const int64_t count = of.weight.size(0);
    if (classes.is_cpu() && classes.numel() > 0) {
      const auto [least, most] = at::aminmax(classes);
      const int64_t bad = least.item<int64_t>() < 0 ? least.item<int64_t>() : most.item<int64_t>();
      TORCH_CHECK_INDEX(bad >= 0 && bad < count, "Target ", bad, " is out of bounds.");
    }
    const Tensor counts = counted.to(at::kFloat);
    weight = of.class_weight.defined()
                 ? of.class_weight.index_select(0, classes.squeeze(1)).unsqueeze(1) * counts
                 : counts;
    soft = of.label_smoothing / static_cast<double>(count);
    hard = weight * (1 - of.label_smoothing);
    if (soft == 0) {
      total = hard;
    } else {
      total = hard + counts * soft *
                         (of.class_weight.defined() ? of.class_weight.sum()
                                                    : at::full({}, count, counts.options()));
    }
  }

  Tensor counted;  // Whether the target is not ignored.
  Tensor classes;
  Tensor weight;  // Weight of the target's class.
  Tensor hard;
  Tensor total;     // hard + the sum of soft over the classes.
  double soft = 0;  // soft[c] of a class of weight 1.
};

// Replaces the logits of some tokens, float32 [n, V], by e^(logit - the token's largest logit).
// Returns the losses [n, 1] and the sums of the exponentials [n, 1].
std::pair<Tensor, Tensor> Exponentiate(Tensor& logits, const Targets& targets,
                                       const Tensor& class_weight) {
  logits.sub_(logits.amax(1, /*keepdim=*/true));
  Tensor losses = -targets.hard * logits.gather(1, targets.classes);
  if (targets.soft != 0) {
    const Tensor sums =
        class_weight.defined() ? logits.mv(class_weight).unsqueeze(1) : logits.sum(1, true);
    losses.sub_(sums, targets.soft);
  }
  logits.exp_();
  Tensor sums = logits.sum(1, /*keepdim=*/true);
  losses.add_(targets.total * sums.log()).masked_fill_(~targets.counted, 0);
  return {losses, sums};
}

// Replaces exponentials by the gradients of the logits, for the factors [n, 1] of the losses.
void Differentiate(Tensor& exponentials, const Tensor& sums, const Targets& targets,
                   const Tensor& class_weight, const Tensor& factors) {
  const Tensor counted = factors.masked_fill(~targets.counted, 0);
  exponentials.mul_(counted * targets.total / sums);
  if (targets.soft != 0 && class_weight.defined()) {
    exponentials.addr_(counted.squeeze(1), class_weight, 1, -targets.soft);
  } else if (targets.soft != 0) {
    exponentials.sub_(counted, targets.soft);
  }
  exponentials.scatter_add_(1, targets.classes, -counted * targets.hard);
}

// A computation of the logits of chunks, in memory that all chunks share.
class Logits {
 public:
  Logits(const LinearCrossEntropyArguments& of, int64_t chunk)
      : of_(of),
        classes_(of.weight.t()),
        // Zeros, because a search for non-finite numbers also reads the rows that are unused.
        products_(
            at::zeros({std::min(chunk, of.input.size(0)), of.weight.size(0)}, of.input.options())),
        logits_(products_.scalar_type() == at::kFloat ? products_ : products_.to(at::kFloat)) {}

  // Returns the logits of some rows of the input, float32.
  Tensor Of(const Tensor& input) {
    Tensor products = products_.narrow(0, 0, input.size(0));
    if (of_.bias.defined()) {
      at::addmm_out(products, of_.bias, input, classes_);
    } else {
      at::mm_out(products, input, classes_);
    }
    Tensor logits = logits_.narrow(0, 0, input.size(0));
    if (!products_.is_same(logits_)) logits.copy_(products);
    return logits;
  }

  // Returns the gradients of the logits of the last call of Of, in the type of the products.
  Tensor Rounded(const Tensor& gradients) {
    if (products_.is_same(logits_)) return gradients;
    return products_.narrow(0, 0, gradients.size(0)).copy_(gradients);
  }

 private:
  const LinearCrossEntropyArguments& of_;
  const Tensor classes_;  // [D, V].
  Tensor products_;       // [chunk, V].
  Tensor logits_;         // float32 [chunk, V]; products_ itself if that is float32.
};

Targets PartOf(const Targets& targets, int64_t first, int64_t count) {
  Targets part = targets;
  for (Tensor Targets::*field :
       {&Targets::counted, &Targets::classes, &Targets::weight, &Targets::hard, &Targets::total}) {
    part.*field = (targets.*field).narrow(0, first, count);
  }
  return part;
}

// Adds left * right to `sum`, float32. `memory` has the shape of `sum` and the type of `left`.
void AddTo(Tensor& sum, const Tensor& left, const Tensor& right, Tensor& memory) {
  if (left.scalar_type() == at::kFloat) {
    at::addmm_out(sum, sum, left, right);
  } else {
    sum.add_(at::mm_out(memory, left, right));
  }
}

class Function : public torch::autograd::Function<Function> {
 public:
  static variable_list forward(AutogradContext* context, const Tensor& input, const Tensor& weight,
                               const std::optional<Tensor>& bias,
                               LinearCrossEntropyArguments arguments, const Tensor& factors,
                               at::ScalarType format) {
    arguments.input = input.to(format);
    arguments.weight = weight.to(format);
    if (bias) arguments.bias = bias->to(format);
    LinearCrossEntropyGradients result =
        TokenLossesAndGradients(arguments, factors, TokensPerChunk(weight.size(0)));
    context->saved_data["gradients"] =
        std::vector<Tensor>{result.input, result.weight, result.bias};
    context->saved_data["types"] = std::vector<int64_t>{static_cast<int64_t>(input.scalar_type()),
                                                        static_cast<int64_t>(weight.scalar_type())};
    context->mark_non_differentiable({result.losses});
    return {result.losses.dot(factors), result.losses};
  }

  static variable_list backward(AutogradContext* context, variable_list gradients) {
    // In place, because the weight's gradient is large.
    const auto found = context->saved_data.find("gradients");
    TORCH_CHECK(found != context->saved_data.end(), "LinearCrossEntropy: a second backward");
    std::vector<Tensor> own = found->second.toTensorVector();
    context->saved_data.erase(found);
    const std::vector<int64_t> types = context->saved_data["types"].toIntVector();
    variable_list results(6);
    for (size_t i = 0; i < own.size(); ++i) {
      if (!own[i].defined()) continue;
      const auto type = static_cast<at::ScalarType>(types[std::min<size_t>(i, 1)]);
      results[i] = own[i].mul_(gradients[0]).to(type);
    }
    return results;
  }
};

}  // namespace

bool SuitsLinearCrossEntropy(at::Device device, int64_t tokens, int64_t classes) {
  return UsesOwnKernels() && device.is_cpu() && tokens > TokensPerChunk(classes);
}

int64_t TokensPerChunk(int64_t classes) {
  constexpr int64_t kTile = 16;
  const int64_t fitting = kMaxChunkBytes / (classes * static_cast<int64_t>(sizeof(float)));
  return std::max(kTile, fitting / kTile * kTile);
}

Tensor TokenLosses(const LinearCrossEntropyArguments& arguments) {
  const at::NoGradGuard no_grad;
  const int64_t tokens = arguments.input.size(0);
  const int64_t chunk = TokensPerChunk(arguments.weight.size(0));
  const Targets targets(arguments);
  Tensor losses = at::empty({tokens}, arguments.input.options().dtype(at::kFloat));
  Logits logits(arguments, chunk);
  for (int64_t first = 0; first < tokens; first += chunk) {
    const int64_t count = std::min(chunk, tokens - first);
    Tensor some = logits.Of(arguments.input.narrow(0, first, count));
    losses.narrow(0, first, count)
        .copy_(Exponentiate(some, PartOf(targets, first, count), arguments.class_weight)
                   .first.squeeze(1));
  }
  return losses;
}

LinearCrossEntropyGradients TokenLossesAndGradients(const LinearCrossEntropyArguments& arguments,
                                                    const Tensor& factors, int64_t chunk) {
  const at::NoGradGuard no_grad;
  const auto& [input, weight, bias, target, class_weight, ignore_index, smoothing] = arguments;
  const int64_t tokens = input.size(0);
  const Targets targets(arguments);
  const at::TensorOptions wide = input.options().dtype(at::kFloat);
  LinearCrossEntropyGradients result;
  result.losses = at::empty({tokens}, wide);
  result.input = at::empty(input.sizes(), wide);
  result.weight = at::zeros(weight.sizes(), wide);
  if (bias.defined()) result.bias = at::zeros(bias.sizes(), wide);
  // Compute FP16 in FP32, because gradients may underflow before backward applies the loss scale.
  const bool is_half = input.scalar_type() == at::kHalf;
  const Tensor inputs = is_half ? input.to(at::kFloat) : input;
  const Tensor weights = is_half ? weight.to(at::kFloat) : weight;
  Tensor product;
  if (weights.scalar_type() != at::kFloat) product = at::empty_like(weights);
  Logits logits(arguments, chunk);
  for (int64_t first = 0; first < tokens; first += chunk) {
    const int64_t count = std::min(chunk, tokens - first);
    const Targets some = PartOf(targets, first, count);
    Tensor values = logits.Of(input.narrow(0, first, count));
    const auto [losses, sums] = Exponentiate(values, some, class_weight);
    result.losses.narrow(0, first, count).copy_(losses.squeeze(1));
    Differentiate(values, sums, some, class_weight, factors.narrow(0, first, count).unsqueeze(1));
    const Tensor gradients = is_half ? values : logits.Rounded(values);
    result.input.narrow(0, first, count).copy_(at::mm(gradients, weights));
    AddTo(result.weight, gradients.t(), inputs.narrow(0, first, count), product);
    if (bias.defined()) result.bias.add_(values.sum(0));
  }
  return result;
}

Tensor TokenWeights(const LinearCrossEntropyArguments& arguments) {
  return Targets(arguments).weight.squeeze(1);
}

LinearCrossEntropyLoss LinearCrossEntropy(const LinearCrossEntropyArguments& arguments,
                                          const Tensor& factors, at::ScalarType format) {
  const std::optional<Tensor> bias =
      arguments.bias.defined() ? std::optional(arguments.bias) : std::nullopt;
  const variable_list found =
      Function::apply(arguments.input, arguments.weight, bias, arguments, factors, format);
  return {found[0], found[1]};
}

}  // namespace genesis
