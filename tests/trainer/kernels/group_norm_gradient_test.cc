#include "trainer/kernels/group_norm_gradient.h"

#include <ATen/ops/native_group_norm_backward_cpu_dispatch.h>
#include <torch/torch.h>

#include <array>
#include <cmath>
#include <optional>
#include <vector>

#include "config/precision/vector_instructions.h"
#include "gtest/gtest.h"
#include "trainer/kernels/own_kernels.h"

namespace genesis {
namespace {

class GroupNormGradientTest : public testing::Test {
 protected:
  static void SetUpTestSuite() {
    UseOwnKernels();
    torch::manual_seed(1);
  }
};

struct Shape {
  int64_t count, channels, height, width, groups;
};

struct Pass {
  Shape shape;
  at::Tensor gradient, input, weight, mean, rstd;
};

// Runs a forward pass. Weights stay FP32 under autocast, and so do mean and rstd.
Pass Forward(const Shape& shape, at::ScalarType type,
             at::MemoryFormat format = at::MemoryFormat::ChannelsLast) {
  Pass pass;
  pass.shape = shape;
  const auto maps = [&] {
    return at::randn({shape.count, shape.channels, shape.height, shape.width})
        .to(type)
        .contiguous(format);
  };
  pass.gradient = maps();
  pass.input = maps() * 2 + 0.5;
  pass.weight = at::randn({shape.channels});
  at::Tensor output;
  std::tie(output, pass.mean, pass.rstd) =
      at::native_group_norm(pass.input, pass.weight, at::randn({shape.channels}), shape.count,
                            shape.channels, shape.height * shape.width, shape.groups, 1e-5);
  return pass;
}

template <typename Backward>
std::array<at::Tensor, 3> Gradients(const Backward& backward, const Pass& pass,
                                    std::array<bool, 3> wanted = {true, true, true}) {
  auto [input, weight, bias] = backward(
      pass.gradient, pass.input, pass.mean, pass.rstd, std::optional(pass.weight), pass.shape.count,
      pass.shape.channels, pass.shape.height * pass.shape.width, pass.shape.groups, wanted);
  return {input, weight, bias};
}

std::array<at::Tensor, 3> Exact(const Pass& pass) {
  const at::Tensor input = pass.input.to(at::kDouble).detach().requires_grad_();
  const at::Tensor weight = pass.weight.to(at::kDouble).detach().requires_grad_();
  const at::Tensor bias = at::zeros_like(weight).requires_grad_();
  at::group_norm(input, pass.shape.groups, weight, bias, 1e-5)
      .backward(pass.gradient.to(at::kDouble));
  return {input.grad(), weight.grad(), bias.grad()};
}

double RelativeError(const at::Tensor& found, const at::Tensor& exact) {
  return ((found.to(at::kDouble) - exact).norm() / exact.norm()).item<double>();
}

const auto kOfProgram = [](auto&&... arguments) {
  return at::native_group_norm_backward(arguments...);
};
const auto kOfLibTorch = [](auto&&... arguments) {
  return at::cpu::native_group_norm_backward(arguments...);
};

const std::vector<Shape> kShapes = {
    {8, 64, 64, 64, 8},   // Groups narrower than a vector.
    {2, 256, 16, 16, 8},  // Wider groups.
    {1, 48, 33, 7, 3},    // One group per vector, and pixels that do not divide evenly.
    {3, 16, 1, 1, 16},    // One channel per group.
    {2, 32, 5, 5, 1},    {2, 24, 9, 9, 4},  // Handled by LibTorch.
};

TEST_F(GroupNormGradientTest, IsThatOfDoublePrecision) {
  for (const Shape& shape : kShapes) {
    for (const auto& [type, most] : {std::pair{at::kFloat, 2e-5}, {at::kBFloat16, 1e-2}}) {
      SCOPED_TRACE(testing::Message() << shape.channels << " channels " << c10::toString(type));
      const Pass pass = Forward(shape, type);
      const auto found = Gradients(kOfProgram, pass);
      const auto of_libtorch = Gradients(kOfLibTorch, pass);
      const auto exact = Exact(pass);
      for (size_t i = 0; i < found.size(); ++i) {
        EXPECT_EQ(found[i].scalar_type(), of_libtorch[i].scalar_type());
        EXPECT_EQ(found[i].strides(), of_libtorch[i].strides());
        // The gradient of a group of one value is only rounding error.
        if (exact[i].norm().item<double>() < 1e-2) continue;
        EXPECT_LE(RelativeError(found[i], exact[i]),
                  std::max(most, 1.1 * RelativeError(of_libtorch[i], exact[i])))
            << i;
      }
    }
  }
}

TEST_F(GroupNormGradientTest, MakesOnlyWhatIsWanted) {
  const Pass pass = Forward(kShapes[1], at::kFloat);
  const auto all = Gradients(kOfProgram, pass);
  // LibTorch's own function crashes if the input gradient of channels_last maps is not requested.
  const size_t count = HasAvx512() ? all.size() : 1;
  for (size_t i = 0; i < count; ++i) {
    std::array<bool, 3> wanted = {};
    wanted[i] = true;
    const auto some = Gradients(kOfProgram, pass, wanted);
    for (size_t j = 0; j < some.size(); ++j) EXPECT_EQ(some[j].defined(), i == j);
    EXPECT_TRUE(at::equal(some[i], all[i]));
  }
}

TEST_F(GroupNormGradientTest, OtherLayoutsAndNoWeightStayWithLibTorch) {
  Pass pass = Forward(kShapes[1], at::kFloat, at::MemoryFormat::Contiguous);
  EXPECT_TRUE(at::equal(Gradients(GroupNormGradient, pass)[0], Gradients(kOfLibTorch, pass)[0]));
  pass = Forward(kShapes[1], at::kFloat);
  const Shape& shape = pass.shape;
  const auto input = [&](const auto& backward) {
    return std::get<0>(backward(pass.gradient, pass.input, pass.mean, pass.rstd, std::nullopt,
                                shape.count, shape.channels, shape.height * shape.width,
                                shape.groups, std::array<bool, 3>{true, false, false}));
  };
  EXPECT_TRUE(at::equal(input(GroupNormGradient), input(kOfLibTorch)));
}

// For maps of one pixel, is_contiguous returns true for both memory formats.
TEST_F(GroupNormGradientTest, ContiguousMapsOfOnePixelStayWithLibTorch) {
  const Pass pass = Forward({6, 512, 1, 1, 1}, at::kFloat, at::MemoryFormat::Contiguous);
  const auto found = Gradients(GroupNormGradient, pass);
  const auto of_libtorch = Gradients(kOfLibTorch, pass);
  for (size_t i = 0; i < found.size(); ++i) EXPECT_TRUE(at::equal(found[i], of_libtorch[i])) << i;
}

TEST_F(GroupNormGradientTest, TakesAGradientOfAnotherLayout) {
  if (!HasAvx512()) GTEST_SKIP() << "no AVX-512; LibTorch's own gives other numbers for one";
  Pass pass = Forward(kShapes[0], at::kBFloat16);
  const auto expected = Gradients(kOfProgram, pass);
  pass.gradient = pass.gradient.contiguous();
  const auto found = Gradients(kOfProgram, pass);
  for (size_t i = 0; i < found.size(); ++i) EXPECT_TRUE(at::equal(found[i], expected[i])) << i;
}

TEST_F(GroupNormGradientTest, KeepsWhatIsNotFiniteInItsOwnGroup) {
  Pass pass = Forward(kShapes[0], at::kBFloat16);
  pass.gradient[5][10][3][4] = NAN;  // In the second group of eight channels.
  const at::Tensor finite = Gradients(kOfProgram, pass)[0].isfinite().flatten(2).all(2);
  EXPECT_EQ(finite.logical_not().sum().item<int64_t>(), 8);
  EXPECT_FALSE(finite[5].slice(0, 8, 16).any().item<bool>());
}

TEST_F(GroupNormGradientTest, IsTheSameForAnyNumberOfThreads) {
  if (!HasAvx512()) GTEST_SKIP() << "no AVX-512; LibTorch's own sums what each thread has";
  const int threads = at::get_num_threads();
  const Pass pass = Forward(kShapes[0], at::kBFloat16);
  at::set_num_threads(1);
  const auto one = Gradients(kOfProgram, pass);
  at::set_num_threads(3);
  const auto three = Gradients(kOfProgram, pass);
  at::set_num_threads(threads);
  for (size_t i = 0; i < one.size(); ++i) EXPECT_TRUE(at::equal(three[i], one[i])) << i;
}

}  // namespace
}  // namespace genesis
