#include "trainer/kernels/attention.h"

#include <ATen/ops/_scaled_dot_product_flash_attention_for_cpu_backward_cpu_dispatch.h>
#include <ATen/ops/_scaled_dot_product_flash_attention_for_cpu_cpu_dispatch.h>
#include <torch/csrc/inductor/aoti_torch/generated/c_shim_cpu.h>
#include <torch/csrc/inductor/aoti_torch/utils.h>
#include <torch/torch.h>

#include <array>
#include <cmath>
#include <limits>
#include <optional>
#include <tuple>
#include <utility>
#include <vector>

#include "gtest/gtest.h"
#include "trainer/kernels/own_kernels.h"

namespace genesis {
namespace {

class AttentionTest : public testing::Test {
 protected:
  static void SetUpTestSuite() {
    UseOwnKernels();
    torch::manual_seed(1);
  }
};

using AttentionGradientTest = AttentionTest;

struct Shape {
  int64_t examples, heads, queries, keys, width;
};

// The tensors of a forward pass, and the gradient of its output.
struct Pass {
  at::Tensor gradient, query, key, value, out, logsumexp;
};

// Returns heads in a model's memory layout: the heads of one position are adjacent.
at::Tensor Heads(const Shape& shape, int64_t length) {
  return at::randn({shape.examples, length, shape.heads, shape.width}).transpose(1, 2);
}

Pass Forward(const Shape& shape, at::ScalarType type, bool causal,
             std::optional<double> scale = std::nullopt) {
  Pass pass;
  pass.gradient = Heads(shape, shape.queries).to(type);
  pass.query = Heads(shape, shape.queries).to(type);
  pass.key = Heads(shape, shape.keys).to(type);
  pass.value = Heads(shape, shape.keys).to(type);
  std::tie(pass.out, pass.logsumexp) = at::_scaled_dot_product_flash_attention_for_cpu(
      pass.query, pass.key, pass.value, 0, causal, {}, scale);
  return pass;
}

std::array<at::Tensor, 3> Gradients(const Pass& pass, bool causal,
                                    std::optional<double> scale = std::nullopt) {
  auto [query, key, value] = at::_scaled_dot_product_flash_attention_for_cpu_backward(
      pass.gradient, pass.query, pass.key, pass.value, pass.out, pass.logsumexp, 0, causal, {},
      scale);
  return {query, key, value};
}

at::Tensor Scores(const at::Tensor& query, const at::Tensor& key, bool causal,
                  std::optional<double> scale = std::nullopt) {
  const at::Tensor scores = at::matmul(query, key.transpose(2, 3)) *
                            scale.value_or(1 / std::sqrt(static_cast<double>(query.size(3))));
  if (!causal) return scores;
  return scores.masked_fill(at::ones_like(scores).triu(1).to(at::kBool),
                            -std::numeric_limits<double>::infinity());
}

// Returns the gradients computed by autograd in double precision from the plain formula.
std::array<at::Tensor, 3> Exact(const Pass& pass, bool causal,
                                std::optional<double> scale = std::nullopt) {
  const auto leaf = [](const at::Tensor& t) { return t.to(at::kDouble).detach().requires_grad_(); };
  const at::Tensor query = leaf(pass.query);
  const at::Tensor key = leaf(pass.key);
  const at::Tensor value = leaf(pass.value);
  const at::Tensor scores = Scores(query, key, causal, scale);
  at::matmul(at::softmax(scores, 3), value).backward(pass.gradient.to(at::kDouble));
  return {query.grad(), key.grad(), value.grad()};
}

double RelativeError(const at::Tensor& found, const at::Tensor& exact) {
  return ((found.to(at::kDouble) - exact).norm() / exact.norm()).item<double>();
}

const std::vector<Shape> kShapes = {
    {4, 6, 128, 128, 64},  // Several heads in parallel.
    {1, 3, 600, 600, 32},  // One head at a time, with a partial last block.
    {2, 3, 200, 333, 96},  // More keys than queries.
    {1, 1, 8, 8, 16},      // Handled by LibTorch.
    {1, 1, 800, 800, 64},  // Also handled by LibTorch, because of its length.
};

// Returns output and logsumexp of the plain formula in double precision.
std::pair<at::Tensor, at::Tensor> ExactForward(const Pass& pass, bool causal) {
  const at::Tensor scores = Scores(pass.query.to(at::kDouble), pass.key.to(at::kDouble), causal);
  return {at::matmul(at::softmax(scores, 3), pass.value.to(at::kDouble)), at::logsumexp(scores, 3)};
}

TEST_F(AttentionTest, IsThatOfDoublePrecision) {
  for (const Shape& shape : kShapes) {
    for (const bool causal : {false, true}) {
      if (causal && shape.queries != shape.keys) continue;
      for (const auto& [type, most] : {std::pair{at::kFloat, 1e-6}, {at::kBFloat16, 5e-3}}) {
        SCOPED_TRACE(testing::Message() << shape.queries << " x " << shape.keys
                                        << (causal ? " causal " : " ") << c10::toString(type));
        const Pass pass = Forward(shape, type, causal);
        const auto [out, logsumexp] = ExactForward(pass, causal);
        EXPECT_EQ(pass.out.scalar_type(), type);
        EXPECT_EQ(pass.logsumexp.scalar_type(), at::kFloat);
        EXPECT_LE(RelativeError(pass.out, out), most);
        EXPECT_LE(RelativeError(pass.logsumexp, logsumexp), 1e-5);
      }
    }
  }
}

TEST_F(AttentionTest, LiesInMemoryAsThatOfLibTorch) {
  const Pass pass = Forward(kShapes[0], at::kBFloat16, true);
  const auto [out, logsumexp] = at::cpu::_scaled_dot_product_flash_attention_for_cpu(
      pass.query, pass.key, pass.value, 0, true);
  EXPECT_EQ(pass.out.strides(), out.strides());
  EXPECT_EQ(pass.logsumexp.strides(), logsumexp.strides());
}

TEST_F(AttentionTest, KeepsWhatIsNotFiniteInItsOwnQueries) {
  for (const at::ScalarType type : {at::kFloat, at::kBFloat16}) {
    Pass pass = Forward(kShapes[0], type, true);
    pass.query = pass.query.clone();
    pass.key = pass.key.clone();
    pass.query[1][2][5][7] = NAN;
    pass.key[3][0][100][7] = NAN;  // Attended to by 28 queries.
    const at::Tensor finite = at::scaled_dot_product_attention(pass.query, pass.key, pass.value, {},
                                                               0, /*is_causal=*/true)
                                  .isfinite()
                                  .all(3);
    EXPECT_FALSE(finite[1][2][5].item<bool>());
    EXPECT_EQ(finite.logical_not().sum().item<int64_t>(), 1 + 28);
  }
}

TEST_F(AttentionTest, OfScoresTooLargeForAnExponentialIsFinite) {
  Pass pass = Forward(kShapes[0], at::kFloat, false);
  const at::Tensor out =
      at::scaled_dot_product_attention(pass.query * 1000, pass.key, pass.value, {}, 0, false);
  EXPECT_TRUE(out.isfinite().all().item<bool>());
}

TEST_F(AttentionTest, OfCompiledStepsIsTheSame) {
  Pass pass = Forward(kShapes[0], at::kBFloat16, true);
  const auto handle = torch::aot_inductor::tensor_pointer_to_tensor_handle;
  std::array<AtenTensorHandle, 2> made = {};
  ASSERT_EQ(aoti_torch_cpu__scaled_dot_product_flash_attention_for_cpu(
                handle(&pass.query), handle(&pass.key), handle(&pass.value), 0, 1, nullptr, nullptr,
                &made[0], &made[1]),
            AOTI_TORCH_SUCCESS);
  EXPECT_TRUE(at::equal(*torch::aot_inductor::tensor_handle_to_tensor_pointer(made[0]), pass.out));
  EXPECT_TRUE(
      at::equal(*torch::aot_inductor::tensor_handle_to_tensor_pointer(made[1]), pass.logsumexp));
  for (AtenTensorHandle tensor : made) aoti_torch_delete_tensor_object(tensor);
}

TEST_F(AttentionGradientTest, IsThatOfDoublePrecision) {
  for (const Shape& shape : kShapes) {
    for (const bool causal : {false, true}) {
      if (causal && shape.queries != shape.keys) continue;
      for (const auto& [type, most] : {std::pair{at::kFloat, 2e-6}, {at::kBFloat16, 1e-2}}) {
        SCOPED_TRACE(testing::Message() << shape.queries << " x " << shape.keys
                                        << (causal ? " causal " : " ") << c10::toString(type));
        const Pass pass = Forward(shape, type, causal);
        const auto found = Gradients(pass, causal);
        const auto exact = Exact(pass, causal);
        for (size_t i = 0; i < found.size(); ++i) {
          EXPECT_EQ(found[i].scalar_type(), type);
          EXPECT_LE(RelativeError(found[i], exact[i]), most) << i;
        }
      }
    }
  }
}

TEST_F(AttentionGradientTest, IsAsNearAsThatOfLibTorchInBf16) {
  for (const bool causal : {false, true}) {
    const Pass pass = Forward(kShapes[0], at::kBFloat16, causal);
    const auto found = Gradients(pass, causal);
    const auto exact = Exact(pass, causal);
    const auto [query, key, value] = at::cpu::_scaled_dot_product_flash_attention_for_cpu_backward(
        pass.gradient, pass.query, pass.key, pass.value, pass.out, pass.logsumexp, 0, causal);
    EXPECT_LE(RelativeError(found[0], exact[0]), 1.1 * RelativeError(query, exact[0]));
    EXPECT_LE(RelativeError(found[1], exact[1]), 1.1 * RelativeError(key, exact[1]));
    EXPECT_LE(RelativeError(found[2], exact[2]), 1.1 * RelativeError(value, exact[2]));
  }
}

TEST_F(AttentionGradientTest, TakesTheScaleOfTheForwardPass) {
  const Pass pass = Forward(kShapes[0], at::kFloat, false, 0.3);
  const auto found = Gradients(pass, false, 0.3);
  const auto exact = Exact(pass, false, 0.3);
  for (size_t i = 0; i < found.size(); ++i) EXPECT_LE(RelativeError(found[i], exact[i]), 2e-6) << i;
}

TEST_F(AttentionGradientTest, IsWhatAutogradTakes) {
  const Pass pass = Forward(kShapes[0], at::kBFloat16, true);
  const at::Tensor query = pass.query.detach().requires_grad_();
  const at::Tensor key = pass.key.detach().requires_grad_();
  const at::Tensor value = pass.value.detach().requires_grad_();
  at::scaled_dot_product_attention(query, key, value, {}, 0, /*is_causal=*/true)
      .backward(pass.gradient);
  const auto expected = Gradients(pass, true);
  EXPECT_TRUE(at::equal(query.grad(), expected[0]));
  EXPECT_TRUE(at::equal(key.grad(), expected[1]));
  EXPECT_TRUE(at::equal(value.grad(), expected[2]));
}

// The memory layout that compiled steps expect.
TEST_F(AttentionGradientTest, LiesInMemoryAsThatOfLibTorch) {
  const Pass pass = Forward(kShapes[0], at::kFloat, true);
  const auto [query, key, value] = at::cpu::_scaled_dot_product_flash_attention_for_cpu_backward(
      pass.gradient, pass.query, pass.key, pass.value, pass.out, pass.logsumexp, 0, true);
  const auto found = Gradients(pass, true);
  EXPECT_EQ(found[0].strides(), query.strides());
  EXPECT_EQ(found[1].strides(), key.strides());
  EXPECT_EQ(found[2].strides(), value.strides());
}

TEST_F(AttentionGradientTest, KeepsWhatIsNotFiniteInItsOwnHead) {
  for (const at::ScalarType type : {at::kFloat, at::kBFloat16}) {
    Pass pass = Forward(kShapes[0], type, true);
    pass.gradient[1][2][5][7] = NAN;
    pass.gradient[3][0][5][7] = INFINITY;
    for (const at::Tensor& found : Gradients(pass, true)) {
      const at::Tensor finite = found.isfinite().flatten(2).all(2);
      EXPECT_FALSE(finite[1][2].item<bool>());
      EXPECT_FALSE(finite[3][0].item<bool>());
      EXPECT_EQ(finite.sum().item<int64_t>(), 4 * 6 - 2);
    }
  }
}

TEST_F(AttentionGradientTest, MasksAndOtherTypesStayWithLibTorch) {
  Pass pass = Forward(kShapes[0], at::kFloat, false);
  const at::Tensor mask = at::randn({128, 128});
  std::tie(pass.out, pass.logsumexp) = at::_scaled_dot_product_flash_attention_for_cpu(
      pass.query, pass.key, pass.value, 0, false, mask);
  const auto of = [&](const auto& backward) {
    return std::get<1>(backward(pass.gradient, pass.query, pass.key, pass.value, pass.out,
                                pass.logsumexp, 0, false, mask, std::nullopt));
  };
  EXPECT_TRUE(at::equal(of(AttentionGradient),
                        of(at::cpu::_scaled_dot_product_flash_attention_for_cpu_backward)));
  const Pass precise = Forward(kShapes[0], at::kDouble, true);
  EXPECT_LE(RelativeError(Gradients(precise, true)[0], Exact(precise, true)[0]), 1e-12);
}

TEST_F(AttentionGradientTest, ThatOfCompiledStepsIsTheSame) {
  Pass pass = Forward(kShapes[0], at::kBFloat16, true);
  const auto handle = torch::aot_inductor::tensor_pointer_to_tensor_handle;
  std::array<AtenTensorHandle, 3> made = {};
  const auto backward = [&](at::Tensor& key) {
    return aoti_torch_cpu__scaled_dot_product_flash_attention_for_cpu_backward(
        handle(&pass.gradient), handle(&pass.query), handle(&key), handle(&pass.value),
        handle(&pass.out), handle(&pass.logsumexp), 0, 1, nullptr, nullptr, &made[0], &made[1],
        &made[2]);
  };
  ASSERT_EQ(backward(pass.key), AOTI_TORCH_SUCCESS);
  const auto expected = Gradients(pass, true);
  for (size_t i = 0; i < made.size(); ++i) {
    EXPECT_TRUE(
        at::equal(*torch::aot_inductor::tensor_handle_to_tensor_pointer(made[i]), expected[i]));
    aoti_torch_delete_tensor_object(made[i]);
  }
}

TEST_F(AttentionGradientTest, IsTheSameToTheBitEachTime) {
  const Pass pass = Forward(kShapes[0], at::kBFloat16, true);
  const auto first = Gradients(pass, true);
  for (int i = 0; i < 20; ++i) {
    const auto again = Gradients(pass, true);
    for (size_t j = 0; j < first.size(); ++j) ASSERT_TRUE(at::equal(again[j], first[j]));
  }
}

}  // namespace
}  // namespace genesis
