#include "trainer/cuda/cuda_operators.h"

#include <ATen/core/dispatch/Dispatcher.h>
#include <torch/torch.h>

#include <algorithm>
#include <array>
#include <string>
#include <tuple>

#include "gtest/gtest.h"

namespace genesis {
namespace {

using torch::Tensor;
using Three = std::tuple<Tensor, Tensor, Tensor>;

// Returns this program's replacement of an operator of ATen.
template <typename Signature>
auto Substitute(const std::string& name) {
  const auto& all = OperatorsForCuda();
  const auto found = std::find_if(all.begin(), all.end(), [&](const auto& pair) {
    return pair.first == "torch.ops.aten." + name + ".default";
  });
  EXPECT_NE(found, all.end());
  EXPECT_EQ(found->second, "torch.ops.genesis." + name + ".default");
  return c10::Dispatcher::singleton()
      .findSchemaOrThrow(("genesis::" + name).c_str(), "")
      .typed<Signature>();
}

void ExpectClose(const Tensor& found, const Tensor& wanted, double tolerance) {
  EXPECT_EQ(found.scalar_type(), wanted.scalar_type());
  const double most = (found.to(torch::kDouble) - wanted).abs().max().item<double>();
  EXPECT_LE(most, tolerance * wanted.abs().max().item<double>());
}

void ExpectClose(const Three& found, const Three& wanted, double tolerance) {
  ExpectClose(std::get<0>(found), std::get<0>(wanted), tolerance);
  ExpectClose(std::get<1>(found), std::get<1>(wanted), tolerance);
  ExpectClose(std::get<2>(found), std::get<2>(wanted), tolerance);
}

// Parameters: BF16 inputs with FP32 weights, as the CPU's kernels accept them, and FP32 only.
class CudaOperatorsTest : public testing::TestWithParam<torch::ScalarType> {
 protected:
  void SetUp() override { torch::manual_seed(1); }
  Tensor Drawn(torch::IntArrayRef sizes) const { return torch::randn(sizes).to(GetParam()); }
  double tolerance() const { return GetParam() == torch::kFloat ? 1e-5 : 2e-2; }
};

TEST_P(CudaOperatorsTest, LayerNormIsThatOfTheCpu) {
  const Tensor input = Drawn({6, 5, 24});
  const Tensor gradient = Drawn({6, 5, 24});
  const Tensor weight = torch::randn({24});
  const Tensor bias = torch::randn({24});
  const Three wanted = at::native_layer_norm(input, {24}, weight, bias, 1e-5);
  ExpectClose(Substitute<Three(const Tensor&, c10::IntArrayRef, const std::optional<Tensor>&,
                               const std::optional<Tensor>&, double)>("native_layer_norm")
                  .call(input, c10::IntArrayRef{24}, weight, bias, 1e-5),
              wanted, tolerance());
  const std::array<bool, 3> all = {true, true, true};
  ExpectClose(
      Substitute<Three(const Tensor&, const Tensor&, c10::IntArrayRef, const Tensor&, const Tensor&,
                       const std::optional<Tensor>&, const std::optional<Tensor>&,
                       std::array<bool, 3>)>("native_layer_norm_backward")
          .call(gradient, input, c10::IntArrayRef{24}, std::get<1>(wanted), std::get<2>(wanted),
                weight, bias, all),
      at::native_layer_norm_backward(gradient, input, {24}, std::get<1>(wanted),
                                     std::get<2>(wanted), weight, bias, all),
      tolerance());
}

TEST_P(CudaOperatorsTest, GroupNormIsThatOfTheCpu) {
  const Tensor input = Drawn({4, 6, 5, 5});
  const Tensor gradient = Drawn({4, 6, 5, 5});
  const Tensor weight = torch::randn({6});
  const Tensor bias = torch::randn({6});
  const Three wanted = at::native_group_norm(input, weight, bias, 4, 6, 25, 3, 1e-5);
  ExpectClose(
      Substitute<Three(const Tensor&, const std::optional<Tensor>&, const std::optional<Tensor>&,
                       int64_t, int64_t, int64_t, int64_t, double)>("native_group_norm")
          .call(input, weight, bias, 4, 6, 25, 3, 1e-5),
      wanted, tolerance());
  const std::array<bool, 3> all = {true, true, true};
  ExpectClose(Substitute<Three(const Tensor&, const Tensor&, const Tensor&, const Tensor&,
                               const std::optional<Tensor>&, int64_t, int64_t, int64_t, int64_t,
                               std::array<bool, 3>)>("native_group_norm_backward")
                  .call(gradient, input, std::get<1>(wanted), std::get<2>(wanted), weight, 4, 6, 25,
                        3, all),
              at::native_group_norm_backward(gradient, input, std::get<1>(wanted),
                                             std::get<2>(wanted), weight, 4, 6, 25, 3, all),
              tolerance());
}

INSTANTIATE_TEST_SUITE_P(Types, CudaOperatorsTest,
                         testing::Values(torch::kFloat, torch::kBFloat16));

TEST(CudaOperatorsViewTest, AnyLayoutCanBeSeenInAnotherShape) {
  const Tensor turned = torch::arange(24).reshape({4, 6}).t();
  const auto view = Substitute<Tensor(const Tensor&, c10::IntArrayRef)>("view");
  EXPECT_TRUE(view.call(turned, c10::IntArrayRef{24}).equal(turned.reshape({24})));
  // A tensor that can be viewed must not be copied.
  const Tensor whole = torch::arange(24);
  EXPECT_EQ(view.call(whole, c10::IntArrayRef{4, 6}).data_ptr(), whole.data_ptr());
}

}  // namespace
}  // namespace genesis
