#include "trainer/kernels/linear_cross_entropy.h"

#include <torch/torch.h>

#include <string>
#include <tuple>

#include "gtest/gtest.h"
#include "trainer/kernels/own_kernels.h"

namespace genesis {
namespace {

constexpr int64_t kTokens = 37;
constexpr int64_t kClasses = 1003;  // No multiple of 8.
constexpr int64_t kWidth = 24;
constexpr int64_t kChunk = 16;  // The last chunk has five tokens.

struct Options {
  std::string name;
  at::ScalarType type = at::kFloat;
  bool bias = false;
  bool class_weight = false;
  double label_smoothing = 0;
};

class LinearCrossEntropyTest : public testing::Test {
 protected:
  static void SetUpTestSuite() {
    if (!UsesOwnKernels()) UseOwnKernels();
  }

  void SetUp() override { torch::manual_seed(1); }

  static LinearCrossEntropyArguments Arguments(const Options& options) {
    LinearCrossEntropyArguments arguments;
    arguments.input = at::randn({kTokens, kWidth}).to(options.type);
    arguments.weight = at::randn({kClasses, kWidth}).mul_(0.3).to(options.type);
    if (options.bias) arguments.bias = at::randn({kClasses}).to(options.type);
    arguments.target = at::randint(kClasses, {kTokens}, at::kLong);
    arguments.ignore_index = 5;
    arguments.target[3] = 5;
    arguments.target[kTokens - 1] = 5;
    if (options.class_weight) arguments.class_weight = at::rand({kClasses});
    arguments.label_smoothing = options.label_smoothing;
    return arguments;
  }
};

class LinearCrossEntropyOptionsTest : public LinearCrossEntropyTest,
                                      public testing::WithParamInterface<Options> {};

// Returns the losses by LibTorch in FP64, with gradients for the factors. Gradients of a layer in
// lower precision are compared with those of the same numbers.
LinearCrossEntropyGradients Exact(const LinearCrossEntropyArguments& of,
                                  const at::Tensor& factors) {
  const auto exact = [](const at::Tensor& tensor) {
    return tensor.defined() ? tensor.detach().to(at::kDouble).requires_grad_() : tensor;
  };
  const at::Tensor input = exact(of.input), weight = exact(of.weight), bias = exact(of.bias);
  const at::Tensor class_weight =
      of.class_weight.defined() ? of.class_weight.to(at::kDouble) : of.class_weight;
  at::Tensor logits = input.matmul(weight.t());
  if (bias.defined()) logits = logits + bias;
  const at::Tensor losses = at::cross_entropy_loss(
      logits, of.target, class_weight, at::Reduction::None, of.ignore_index, of.label_smoothing);
  losses.backward(factors.to(at::kDouble));
  return {losses.detach(), input.grad(), weight.grad(),
          bias.defined() ? bias.grad() : at::Tensor()};
}

// Returns the largest difference relative to the largest number.
double Difference(const at::Tensor& found, const at::Tensor& exact) {
  return ((found.to(at::kDouble) - exact).abs().max() / exact.abs().max()).item<double>();
}

TEST_P(LinearCrossEntropyOptionsTest, IsThatOfFp64) {
  const LinearCrossEntropyArguments arguments = Arguments(GetParam());
  const at::Tensor factors = at::rand({kTokens});
  const LinearCrossEntropyGradients exact = Exact(arguments, factors);
  // Logits and their gradients are rounded to the type.
  const double tolerance = GetParam().type == at::kFloat  ? 2e-6
                           : GetParam().type == at::kHalf ? 2e-3
                                                          : 1.5e-2;
  for (const int64_t chunk : {kChunk, kTokens, int64_t{1}, 2 * kTokens}) {
    const auto found = TokenLossesAndGradients(arguments, factors, chunk);
    EXPECT_LT(Difference(found.losses, exact.losses), tolerance) << chunk;
    EXPECT_LT(Difference(found.input, exact.input), tolerance) << chunk;
    EXPECT_LT(Difference(found.weight, exact.weight), tolerance) << chunk;
    if (GetParam().bias) {
      EXPECT_LT(Difference(found.bias, exact.bias), tolerance) << chunk;
    }
    EXPECT_EQ(found.losses[3].item<float>(), 0);
    EXPECT_EQ(found.input[3].abs().max().item<float>(), 0);
  }
  EXPECT_LT(Difference(TokenLosses(arguments), exact.losses), tolerance);
}

INSTANTIATE_TEST_SUITE_P(All, LinearCrossEntropyOptionsTest,
                         testing::Values(Options{.name = "Plain"},
                                         Options{.name = "Bias", .bias = true},
                                         Options{.name = "ClassWeight", .class_weight = true},
                                         Options{.name = "Smoothing", .label_smoothing = 0.1},
                                         Options{.name = "Everything",
                                                 .bias = true,
                                                 .class_weight = true,
                                                 .label_smoothing = 0.2},
                                         Options{.name = "Bf16", .type = at::kBFloat16},
                                         Options{.name = "Bf16Everything",
                                                 .type = at::kBFloat16,
                                                 .bias = true,
                                                 .class_weight = true,
                                                 .label_smoothing = 0.1},
                                         Options{.name = "Fp16", .type = at::kHalf, .bias = true}),
                         [](const auto& made) { return made.param.name; });

// Autograd: an embedding that is also the output layer gets both gradients.
TEST_F(LinearCrossEntropyTest, ATiedWeightGetsBothGradients) {
  const at::Tensor tokens = at::randint(kClasses, {kTokens}, at::kLong);
  const LinearCrossEntropyArguments given = Arguments({});
  const at::Tensor factors = at::rand({kTokens});
  const at::Tensor weight = given.weight.clone().requires_grad_();
  LinearCrossEntropyArguments arguments = given;
  arguments.weight = weight;
  arguments.input = at::embedding(weight, tokens);
  const auto found = LinearCrossEntropy(arguments, factors, at::kFloat);
  (found.loss * 3).backward();

  const at::Tensor exact = given.weight.to(at::kDouble).requires_grad_();
  const at::Tensor losses =
      at::cross_entropy_loss(at::embedding(exact, tokens).matmul(exact.t()), given.target, {},
                             at::Reduction::None, given.ignore_index);
  const at::Tensor loss = losses.dot(factors.to(at::kDouble));
  (loss * 3).backward();
  EXPECT_NEAR(found.loss.item<double>(), loss.item<double>(), 1e-5 * loss.item<double>());
  EXPECT_LT(Difference(found.losses, losses.detach()), 2e-6);
  EXPECT_LT(Difference(weight.grad(), exact.grad()), 2e-6);
  EXPECT_FALSE(found.losses.requires_grad());
  EXPECT_THROW(found.loss.backward(), c10::Error);
}

// Gradients of a mean over many tokens are below FP16's range before the loss scale.
TEST_F(LinearCrossEntropyTest, Fp16KeepsGradientsThatNeedTheLossScale) {
  LinearCrossEntropyArguments arguments = Arguments({});
  const at::Tensor factors = at::full({kTokens}, 1e-9);
  LinearCrossEntropyArguments halves = arguments;
  halves.input = arguments.input.to(at::kHalf);
  halves.weight = arguments.weight.to(at::kHalf);
  const LinearCrossEntropyGradients exact = Exact(halves, factors);
  arguments.input.requires_grad_();
  arguments.weight.requires_grad_();
  (LinearCrossEntropy(arguments, factors, at::kHalf).loss * 65536).backward();
  EXPECT_LT(Difference(arguments.input.grad() / 65536, exact.input), 2e-3);
  EXPECT_LT(Difference(arguments.weight.grad() / 65536, exact.weight), 2e-3);
}

// A mean over no tokens is NaN, and moves nothing.
TEST_F(LinearCrossEntropyTest, WithoutTargetsTheMeanIsNanAndGradientsAreZeroAsInTorch) {
  LinearCrossEntropyArguments arguments = Arguments({});
  arguments.target.fill_(arguments.ignore_index);
  const at::Tensor weights = TokenWeights(arguments);
  EXPECT_EQ(weights.sum().item<float>(), 0);
  const at::Tensor factors = (1 / weights.sum()).expand({kTokens});
  const auto found = TokenLossesAndGradients(arguments, factors, kChunk);
  EXPECT_TRUE((found.losses.sum() / weights.sum()).isnan().item<bool>());

  const at::Tensor input = arguments.input.clone().requires_grad_();
  const at::Tensor loss =
      at::cross_entropy_loss(input.matmul(arguments.weight.t()), arguments.target, {},
                             at::Reduction::Mean, arguments.ignore_index);
  loss.backward();
  EXPECT_TRUE(loss.isnan().item<bool>());
  EXPECT_TRUE(at::equal(input.grad(), found.input));
  EXPECT_EQ(found.weight.abs().max().item<float>(), 0);
}

TEST_F(LinearCrossEntropyTest, NumbersThatAreNotFiniteSpreadAsInTorch) {
  for (const double bad : {std::nan(""), HUGE_VAL, -HUGE_VAL}) {
    for (const int64_t row : {int64_t{1}, int64_t{3}}) {  // The target of row 3 is ignored.
      LinearCrossEntropyArguments arguments = Arguments({.name = "", .bias = true});
      arguments.input[row][0] = bad;
      const at::Tensor factors = at::rand({kTokens});
      const auto found = TokenLossesAndGradients(arguments, factors, kChunk);
      const at::Tensor input = arguments.input.clone().requires_grad_();
      const at::Tensor weight = arguments.weight.clone().requires_grad_();
      const at::Tensor losses =
          at::cross_entropy_loss(at::addmm(arguments.bias, input, weight.t()), arguments.target, {},
                                 at::Reduction::None, arguments.ignore_index);
      losses.backward(factors);
      EXPECT_TRUE(at::equal(found.losses.isnan(), losses.isnan())) << bad << row;
      EXPECT_TRUE(at::equal(found.input.isnan(), input.grad().isnan())) << bad << row;
      EXPECT_TRUE(at::equal(found.weight.isnan(), weight.grad().isnan())) << bad << row;
    }
  }
}

// Classes can be masked by a bias of minus infinity.
TEST_F(LinearCrossEntropyTest, MaskedClassesHaveNoGradient) {
  LinearCrossEntropyArguments arguments = Arguments({.name = "", .bias = true});
  arguments.target.fill_(7);
  arguments.bias.narrow(0, 100, 50).fill_(-HUGE_VAL);
  const at::Tensor factors = at::rand({kTokens});
  const auto found = TokenLossesAndGradients(arguments, factors, kChunk);
  const LinearCrossEntropyGradients exact = Exact(arguments, factors);
  EXPECT_LT(Difference(found.losses, exact.losses), 2e-6);
  EXPECT_LT(Difference(found.input, exact.input), 2e-6);
  EXPECT_EQ(found.weight.narrow(0, 100, 50).abs().max().item<float>(), 0);
}

TEST_F(LinearCrossEntropyTest, ATargetThatIsNoClassIsTorchsError) {
  for (const int64_t bad : {kClasses, int64_t{-1}}) {
    LinearCrossEntropyArguments arguments = Arguments({});
    arguments.target[20] = bad;
    std::string expected, found;
    try {
      at::cross_entropy_loss(arguments.input.matmul(arguments.weight.t()), arguments.target, {},
                             at::Reduction::None, arguments.ignore_index);
    } catch (const c10::IndexError& error) {
      expected = error.what_without_backtrace();
    }
    try {
      TokenLossesAndGradients(arguments, at::ones({kTokens}), kChunk);
    } catch (const c10::IndexError& error) {
      found = error.what_without_backtrace();
    }
    EXPECT_FALSE(expected.empty());
    EXPECT_EQ(found, expected);
  }
}

TEST_F(LinearCrossEntropyTest, SuitsLogitsOfMoreThanOneChunk) {
  const int64_t chunk = TokensPerChunk(50304);
  EXPECT_EQ(chunk % 16, 0);
  EXPECT_FALSE(SuitsLinearCrossEntropy(at::kCPU, chunk, 50304));
  EXPECT_TRUE(SuitsLinearCrossEntropy(at::kCPU, chunk + 1, 50304));
  EXPECT_FALSE(SuitsLinearCrossEntropy(at::kCUDA, chunk + 1, 50304));
  EXPECT_FALSE(SuitsLinearCrossEntropy(at::kCPU, 8192, 256));
}

}  // namespace
}  // namespace genesis
