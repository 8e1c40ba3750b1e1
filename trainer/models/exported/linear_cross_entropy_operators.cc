#include "trainer/models/exported/linear_cross_entropy_operators.h"

#include <ATen/core/Reduction.h>
#include <torch/library.h>
#include <torch/torch.h>

#include <optional>
#include <tuple>

#include "absl/strings/str_cat.h"
#include "trainer/kernels/linear_cross_entropy.h"

namespace genesis {
namespace {

using at::Tensor;
using OptionalTensor = std::optional<Tensor>;

// The operator's arguments.
struct Call {
  bool suits() const {
    return SuitsLinearCrossEntropy(input.device(), input.size(0), weight.size(1));
  }

  LinearCrossEntropyArguments arguments() const {
    return {.input = input,
            .weight = weight.t(),
            .bias = bias.value_or(Tensor()),
            .target = target,
            .class_weight = class_weight.value_or(Tensor()),
            .ignore_index = ignore_index};
  }

  Tensor Logits() const { return bias ? at::addmm(*bias, input, weight) : at::mm(input, weight); }

  const Tensor& input;
  const Tensor& weight;
  const OptionalTensor& bias;
  const Tensor& target;
  const OptionalTensor& class_weight;
  int64_t reduction;
  int64_t ignore_index;
};

// Returns the reduced loss of the tokens, and the divisor of their mean.
std::tuple<Tensor, Tensor> Reduced(const Call& call, const Tensor& losses, const Tensor& total) {
  // nll_loss_forward returns a zero here, too.
  if (call.reduction == at::Reduction::None) return {losses, at::zeros({}, losses.options())};
  if (call.reduction == at::Reduction::Sum) return {losses.sum(), total};
  return {losses.sum() / total, total};
}

std::tuple<Tensor, Tensor> Forward(const Call& call) {
  if (!call.suits()) {
    return at::nll_loss_forward(at::log_softmax(call.Logits().to(at::kFloat), 1), call.target,
                                call.class_weight, call.reduction, call.ignore_index);
  }
  const LinearCrossEntropyArguments arguments = call.arguments();
  return Reduced(call, TokenLosses(arguments), TokenWeights(arguments).sum());
}

using Results = std::tuple<Tensor, Tensor, Tensor, Tensor, Tensor>;

// Computes loss and gradients with the operators of the original graph.
Results BackwardByTorch(const Call& call, const Tensor& grad_output) {
  const Tensor probabilities = at::log_softmax(call.Logits().to(at::kFloat), 1);
  const auto [loss, total] = at::nll_loss_forward(probabilities, call.target, call.class_weight,
                                                  call.reduction, call.ignore_index);
  const Tensor gradient =
      at::_log_softmax_backward_data(
          at::nll_loss_backward(grad_output, probabilities, call.target, call.class_weight,
                                call.reduction, call.ignore_index, total),
          probabilities, 1, at::kFloat)
          .to(call.input.scalar_type());
  return {loss, total, at::mm(gradient, call.weight.t()), at::mm(gradient.t(), call.input),
          call.bias ? gradient.sum({0}, /*keepdim=*/true) : Tensor()};
}

Results Backward(const Call& call, const Tensor& grad_output) {
  if (!call.suits()) return BackwardByTorch(call, grad_output);
  const LinearCrossEntropyArguments arguments = call.arguments();
  const int64_t tokens = call.input.size(0);
  const Tensor weights = TokenWeights(arguments).sum();
  const Tensor factors =
      call.reduction == at::Reduction::Mean ? grad_output / weights : grad_output;
  const LinearCrossEntropyGradients found = TokenLossesAndGradients(
      arguments, factors.expand({tokens}), TokensPerChunk(call.weight.size(1)));
  const auto [loss, total] = Reduced(call, found.losses, weights);
  const at::ScalarType type = call.input.scalar_type();
  return {loss, total, found.input.to(type), found.weight.to(type),
          call.bias ? found.bias.unsqueeze(0).to(type) : Tensor()};
}

std::tuple<Tensor, Tensor> Loss(const Tensor& input, const Tensor& weight,
                                const OptionalTensor& bias, const Tensor& target,
                                const OptionalTensor& class_weight, int64_t reduction,
                                int64_t ignore_index) {
  return Forward({input, weight, bias, target, class_weight, reduction, ignore_index});
}

std::tuple<Tensor, Tensor, Tensor, Tensor> Gradients(const Tensor& input, const Tensor& weight,
                                                     const OptionalTensor& bias,
                                                     const Tensor& target,
                                                     const OptionalTensor& class_weight,
                                                     int64_t reduction, int64_t ignore_index,
                                                     const Tensor& grad_output) {
  auto [loss, total, of_input, of_weight, of_bias] =
      Backward({input, weight, bias, target, class_weight, reduction, ignore_index}, grad_output);
  return {loss, total, of_input, of_weight};
}

Results GradientsWithBias(const Tensor& input, const Tensor& weight, const OptionalTensor& bias,
                          const Tensor& target, const OptionalTensor& class_weight,
                          int64_t reduction, int64_t ignore_index, const Tensor& grad_output) {
  return Backward({input, weight, bias, target, class_weight, reduction, ignore_index},
                  grad_output);
}

constexpr char kLoss[] = "linear_cross_entropy";
constexpr char kGradients[] = "linear_cross_entropy_gradients";
constexpr char kGradientsWithBias[] = "linear_cross_entropy_gradients_with_bias";

class Definitions {
 public:
  Definitions() {
    Define(kLoss, "", "Tensor, Tensor", &Loss);
    Define(kGradients, ", Tensor grad_output", "Tensor, Tensor, Tensor, Tensor", &Gradients);
    Define(kGradientsWithBias, ", Tensor grad_output", "Tensor, Tensor, Tensor, Tensor, Tensor",
           &GradientsWithBias);
  }

 private:
  template <typename Kernel>
  void Define(const std::string& name, const std::string& last, const std::string& results,
              Kernel kernel) {
    const std::string schema =
        absl::StrCat(name,
                     "(Tensor input, Tensor weight, Tensor? bias, Tensor target, "
                     "Tensor? class_weight, int reduction, int ignore_index",
                     last, ") -> (", results, ")");
    library_.def(schema.c_str());
    library_.impl(name.c_str(),
                  torch::dispatch(c10::DispatchKey::CompositeExplicitAutograd, kernel));
  }

  torch::Library library_{torch::Library::FRAGMENT, "genesis", std::nullopt, __FILE__, __LINE__};
};

}  // namespace

std::string LinearCrossEntropyOperator(bool differentiates, bool has_bias) {
  static const Definitions definitions;
  const char* const name = !differentiates ? kLoss : has_bias ? kGradientsWithBias : kGradients;
  return absl::StrCat("torch.ops.genesis.", name, ".default");
}

}  // namespace genesis
