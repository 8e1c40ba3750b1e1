#include "trainer/kernels/activations.h"

#include <ATen/ops/gelu_backward_cpu_dispatch.h>
#include <ATen/ops/gelu_cpu_dispatch.h>
#include <ATen/ops/silu_backward_cpu_dispatch.h>
#include <ATen/ops/silu_cpu_dispatch.h>
#include <torch/torch.h>

#include <cmath>
#include <functional>
#include <string>
#include <vector>

#include "config/precision/vector_instructions.h"
#include "gtest/gtest.h"
#include "trainer/kernels/own_kernels.h"

namespace genesis {
namespace {

// An operator and its gradient, each as the program's function and as LibTorch's.
struct Activation {
  std::string name;
  std::function<at::Tensor(const at::Tensor&)> value;
  std::function<at::Tensor(const at::Tensor&)> value_of_libtorch;
  std::function<at::Tensor(const at::Tensor&, const at::Tensor&)> gradient;
  std::function<at::Tensor(const at::Tensor&, const at::Tensor&)> gradient_of_libtorch;
};

const Activation kSilu = {
    "silu", [](const at::Tensor& x) { return at::silu(x); },
    [](const at::Tensor& x) { return at::cpu::silu(x); },
    [](const at::Tensor& g, const at::Tensor& x) { return at::silu_backward(g, x); },
    [](const at::Tensor& g, const at::Tensor& x) { return at::cpu::silu_backward(g, x); }};
const Activation kGelu = {
    "gelu", [](const at::Tensor& x) { return at::gelu(x, "tanh"); },
    [](const at::Tensor& x) { return at::cpu::gelu(x, "tanh"); },
    [](const at::Tensor& g, const at::Tensor& x) { return at::gelu_backward(g, x, "tanh"); },
    [](const at::Tensor& g, const at::Tensor& x) { return at::cpu::gelu_backward(g, x, "tanh"); }};

class ActivationsTest : public testing::TestWithParam<Activation> {
 protected:
  static void SetUpTestSuite() {
    UseOwnKernels();
    torch::manual_seed(1);
  }
};

double Error(const at::Tensor& found, const at::Tensor& exact) {
  return (found.to(at::kDouble) - exact).abs().max().item<double>();
}

// Returns typical values of a model, and some for which e^x is not finite.
at::Tensor Inputs(at::IntArrayRef sizes) { return at::randn(sizes) * 4; }

// Returns tensors that are dense in each memory format, one that is not dense, one shorter than a
// vector, and one larger than a thread's share.
std::vector<at::Tensor> Layouts() {
  return {Inputs({1}),
          Inputs({15}),
          Inputs({3, 37}),
          Inputs({40, 30}).t(),
          Inputs({2, 48, 9, 7}).contiguous(at::MemoryFormat::ChannelsLast),
          Inputs({60, 50}).slice(1, 0, 50, 2),
          Inputs({}),
          Inputs({0, 4}),
          Inputs({257, 1023})};
}

TEST_P(ActivationsTest, AreThoseOfDoublePrecision) {
  for (const at::Tensor& layout : Layouts()) {
    for (const auto& [type, most] : {std::pair{at::kFloat, 4e-6}, {at::kBFloat16, 8e-2}}) {
      SCOPED_TRACE(testing::Message() << layout.sizes() << " " << c10::toString(type));
      const at::Tensor input = layout.to(type);
      const at::Tensor gradient = at::randn_like(layout).to(type);
      const at::Tensor value = GetParam().value(input);
      const at::Tensor slope = GetParam().gradient(gradient, input);
      EXPECT_EQ(value.scalar_type(), type);
      EXPECT_EQ(slope.scalar_type(), type);
      EXPECT_EQ(value.strides(), GetParam().value_of_libtorch(input).strides());
      EXPECT_EQ(slope.strides(), GetParam().gradient_of_libtorch(gradient, input).strides());
      if (input.numel() == 0) continue;
      const at::Tensor exact = input.to(at::kDouble).detach().requires_grad_();
      const at::Tensor exact_value = GetParam().value(exact);
      exact_value.backward(gradient.to(at::kDouble));
      EXPECT_LE(Error(value, exact_value.detach()), most);
      EXPECT_LE(Error(slope, exact.grad()), most);
    }
  }
}

TEST_P(ActivationsTest, AreAsNearAsThoseOfLibTorch) {
  for (const auto& type : {at::kFloat, at::kBFloat16}) {
    const at::Tensor input = Inputs({100000}).to(type);
    const at::Tensor gradient = at::randn({100000}).to(type);
    const at::Tensor exact = input.to(at::kDouble).detach().requires_grad_();
    const at::Tensor exact_value = GetParam().value(exact);
    exact_value.backward(gradient.to(at::kDouble));
    EXPECT_LE(Error(GetParam().value(input), exact_value.detach()),
              2 * Error(GetParam().value_of_libtorch(input), exact_value.detach()));
    EXPECT_LE(Error(GetParam().gradient(gradient, input), exact.grad()),
              2 * Error(GetParam().gradient_of_libtorch(gradient, input), exact.grad()));
  }
}

TEST_P(ActivationsTest, KeepWhatIsNotFiniteInItsPlace) {
  for (const auto& type : {at::kFloat, at::kBFloat16}) {
    at::Tensor input = Inputs({100}).to(type);
    at::Tensor gradient = at::randn({100}).to(type);
    input[3] = NAN;
    input[99] = NAN;
    gradient[50] = NAN;
    gradient[51] = INFINITY;
    const at::Tensor value = GetParam().value(input);
    EXPECT_TRUE(at::equal(value.isnan(), input.isnan()));
    const at::Tensor slope = GetParam().gradient(gradient, input);
    EXPECT_TRUE(at::equal(slope.isfinite(), input.isfinite() & gradient.isfinite()));
    // For large absolute values, the results must be the limits, up to rounding.
    const at::Tensor far = at::tensor({-1e4f, 1e4f}).to(type);
    EXPECT_TRUE(at::allclose(GetParam().value(far), far.clamp_min(0)));
    EXPECT_TRUE(
        at::allclose(GetParam().gradient(at::ones_like(far), far), far.sign().clamp_min(0)));
  }
}

TEST_P(ActivationsTest, AreTheSameForAnyNumberOfThreads) {
  const int threads = at::get_num_threads();
  const at::Tensor input = Inputs({300, 1001});
  const at::Tensor gradient = at::randn({300, 1001});
  at::set_num_threads(1);
  const at::Tensor value = GetParam().value(input);
  const at::Tensor slope = GetParam().gradient(gradient, input);
  at::set_num_threads(3);
  // LibTorch's own operator computes the last elements of a thread's share differently.
  const double most = HasAvx512() ? 0 : 1e-5;
  EXPECT_TRUE(at::allclose(GetParam().value(input), value, most, most));
  EXPECT_TRUE(at::allclose(GetParam().gradient(gradient, input), slope, most, most));
  at::set_num_threads(threads);
}

INSTANTIATE_TEST_SUITE_P(Each, ActivationsTest, testing::Values(kSilu, kGelu),
                         [](const auto& each) { return each.param.name; });

TEST(GeluTest, ByTheErrorFunctionStaysWithLibTorch) {
  const at::Tensor input = at::randn({1000});
  const at::Tensor gradient = at::randn({1000});
  EXPECT_TRUE(at::equal(Gelu(input, "none"), at::cpu::gelu(input, "none")));
  EXPECT_TRUE(at::equal(GeluGradient(gradient, input, "none"),
                        at::cpu::gelu_backward(gradient, input, "none")));
  const at::Tensor precise = input.to(at::kDouble);
  EXPECT_TRUE(at::equal(Gelu(precise, "tanh"), at::cpu::gelu(precise, "tanh")));
}

}  // namespace
}  // namespace genesis
