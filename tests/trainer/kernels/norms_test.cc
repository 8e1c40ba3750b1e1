#include "trainer/kernels/norms.h"

#include <ATen/ops/_foreach_norm_compositeexplicitautograd_dispatch.h>
#include <torch/torch.h>

#include <cmath>
#include <limits>
#include <vector>

#include "config/precision/vector_instructions.h"
#include "gtest/gtest.h"
#include "trainer/kernels/own_kernels.h"

namespace genesis {
namespace {

class NormsTest : public testing::Test {
 protected:
  static void SetUpTestSuite() {
    UseOwnKernels();
    torch::manual_seed(1);
  }
};

// Returns tensors of one part, many parts or none, in several memory formats; one is not dense.
std::vector<at::Tensor> Tensors() {
  return {
      at::randn({1}),          at::randn({}),
      at::randn({0, 3}),       at::randn({63}),
      at::randn({700, 333}),   at::randn({65536}),
      at::randn({40, 30}).t(), at::randn({8, 4, 3, 3}).contiguous(at::MemoryFormat::ChannelsLast)};
}

TEST_F(NormsTest, AreThoseOfDoublePrecision) {
  for (const at::ScalarType type : {at::kFloat, at::kBFloat16}) {
    std::vector<at::Tensor> tensors = Tensors();
    for (at::Tensor& tensor : tensors) tensor = tensor.to(type);
    const std::vector<at::Tensor> norms = at::_foreach_norm(tensors, 2, at::kFloat);
    ASSERT_EQ(norms.size(), tensors.size());
    for (size_t i = 0; i < norms.size(); ++i) {
      EXPECT_EQ(norms[i].scalar_type(), at::kFloat);
      EXPECT_EQ(norms[i].dim(), 0);
      const double exact = tensors[i].to(at::kDouble).norm().item<double>();
      // LibTorch's own norm sums a whole tensor in FP32.
      EXPECT_NEAR(norms[i].item<double>(), exact, (HasAvx512() ? 1e-6 : 1e-5) * exact) << i;
    }
  }
}

TEST_F(NormsTest, AreNotFiniteWhereATensorIsNot) {
  for (const float value : {NAN, INFINITY, std::numeric_limits<float>::max()}) {
    std::vector<at::Tensor> tensors = Tensors();
    tensors[4][699][332] = value;
    const std::vector<at::Tensor> norms = at::_foreach_norm(tensors, 2);
    for (size_t i = 0; i < norms.size(); ++i) {
      EXPECT_EQ(norms[i].isfinite().item<bool>(), i != 4) << value << " " << i;
    }
  }
}

TEST_F(NormsTest, OtherOrdersTypesAndLayoutsStayWithLibTorch) {
  std::vector<at::Tensor> tensors = Tensors();
  const auto expect_same = [&](const at::Scalar& order) {
    const std::vector<at::Tensor> norms = Norms(tensors, order, {});
    const auto expected = at::compositeexplicitautograd::_foreach_norm(tensors, order);
    for (size_t i = 0; i < norms.size(); ++i) EXPECT_TRUE(at::equal(norms[i], expected[i])) << i;
  };
  expect_same(1);
  tensors[1] = at::randn({5, 6}).slice(1, 0, 6, 2);
  expect_same(2);
  tensors[1] = at::randn({5}, at::kDouble);
  expect_same(2);
  tensors[1] = at::randn({5}).to(at::kBFloat16);  // Its norm would be BF16 by default.
  expect_same(2);
  EXPECT_TRUE(Norms(std::vector<at::Tensor>{}, 2, {}).empty());
}

TEST_F(NormsTest, AreTheSameForAnyNumberOfThreads) {
  const int threads = at::get_num_threads();
  const std::vector<at::Tensor> tensors = Tensors();
  at::set_num_threads(1);
  const std::vector<at::Tensor> one = at::_foreach_norm(tensors, 2);
  at::set_num_threads(3);
  const std::vector<at::Tensor> three = at::_foreach_norm(tensors, 2);
  at::set_num_threads(threads);
  for (size_t i = 0; i < one.size(); ++i) EXPECT_TRUE(at::equal(three[i], one[i])) << i;
}

}  // namespace
}  // namespace genesis
