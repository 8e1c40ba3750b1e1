#include "trainer/kernels/own_kernels.h"

#include <torch/csrc/inductor/aoti_torch/generated/c_shim_cpu.h>
#include <torch/csrc/inductor/aoti_torch/utils.h>
#include <torch/torch.h>

#include <string>
#include <vector>

#include "gtest/gtest.h"

namespace genesis {
namespace {

class MatrixProductsTest : public testing::Test {
 protected:
  static void SetUpTestSuite() {
    UseOwnKernels();
    torch::manual_seed(1);
  }
};

// Expects at most the error of an FP32 sum of `products` products.
void ExpectNear(const at::Tensor& found, const at::Tensor& exact, int64_t products) {
  ASSERT_EQ(found.sizes(), exact.sizes());
  EXPECT_TRUE(found.is_contiguous());
  if (found.numel() == 0) return;
  const double error = (found.to(at::kDouble) - exact).abs().max().item<double>();
  EXPECT_LE(error, 1e-6 * static_cast<double>(products));
}

// Expects an FP32 sum rounded to BF16 once; LibTorch's own may also round in between.
void ExpectRounded(const at::Tensor& found, const at::Tensor& exact, int64_t products) {
  ASSERT_EQ(found.sizes(), exact.sizes());
  ASSERT_EQ(found.scalar_type(), at::kBFloat16);
  const at::Tensor error = (found.to(at::kDouble) - exact).abs();
  const bool once = MultipliesBf16InFp32();
  const double sums = (once ? 1e-6 : 1e-3) * static_cast<double>(products);
  const double rounding = once ? 0x1.02p-8 : 0x1p-6;
  EXPECT_TRUE((error <= exact.abs() * rounding + sums).all().item<bool>()) << error.max();
}

// Returns matrices with all strides that occur in a step, and with some that do not.
std::vector<at::Tensor> LayoutsOf(int64_t rows, int64_t columns) {
  return {at::randn({rows, columns}), at::randn({columns, rows}).t(),
          at::randn({rows, columns + 3}).narrow(1, 2, columns),
          at::randn({2 * rows, 3 * columns}).slice(0, 0, 2 * rows, 2).slice(1, 1, 3 * columns, 3),
          at::randn({1, columns}).expand({rows, columns})};
}

TEST_F(MatrixProductsTest, AreThoseOfDoublePrecision) {
  for (const auto& [rows, inner, columns] : {std::tuple{1, 1, 1},
                                             {128, 256, 256},
                                             {256, 128, 255},
                                             {97, 301, 211},
                                             {2100, 1000, 1},
                                             {1, 2100, 1000},
                                             {0, 5, 7},
                                             {5, 0, 7}}) {
    for (const at::Tensor& left : LayoutsOf(rows, inner)) {
      for (const at::Tensor& right : LayoutsOf(inner, columns)) {
        const at::Tensor exact = at::mm(left.to(at::kDouble), right.to(at::kDouble));
        ExpectNear(at::mm(left, right), exact, inner);
        for (const at::Tensor& addend : {at::randn({columns}), at::randn({rows, columns}),
                                         at::randn({rows, 1}), at::randn({})}) {
          ExpectNear(at::addmm(addend, left, right), exact + addend, inner + 1);
        }
      }
    }
  }
}

TEST_F(MatrixProductsTest, ThoseOfBf16AreRoundedOnce) {
  for (const auto& [rows, inner, columns] : {std::tuple{1, 1, 1},
                                             {384, 256, 300},
                                             {97, 301, 211},
                                             {1, 2100, 10},
                                             {0, 5, 7},
                                             {5, 0, 7}}) {
    for (at::Tensor left : LayoutsOf(rows, inner)) {
      for (at::Tensor right : LayoutsOf(inner, columns)) {
        left = left.to(at::kBFloat16);
        right = right.to(at::kBFloat16);
        const at::Tensor exact = at::mm(left.to(at::kDouble), right.to(at::kDouble));
        ExpectRounded(at::mm(left, right), exact, inner);
        at::Tensor out = at::full({columns, rows}, NAN, at::kBFloat16).t();
        at::mm_out(out, left, right);
        ExpectRounded(out, exact, inner);
        ExpectRounded(at::bmm(left.expand({3, rows, inner}), right.expand({3, inner, columns})),
                      exact.expand({3, rows, columns}), inner);
        const at::Tensor addend = at::randn({columns}, at::kBFloat16);
        ExpectRounded(at::addmm(addend, left, right), exact + addend.to(at::kDouble), inner + 1);
        ExpectRounded(at::baddbmm(addend, left.unsqueeze(0), right.unsqueeze(0)),
                      (exact + addend.to(at::kDouble)).unsqueeze(0), inner + 1);
      }
    }
  }
}

TEST_F(MatrixProductsTest, AreWrittenWhereTheyAreWanted) {
  const at::Tensor left = at::randn({256, 512});
  const at::Tensor right = at::randn({512, 300});
  const at::Tensor addend = at::randn({300});
  const at::Tensor product = at::mm(left, right);
  const at::Tensor sum = at::addmm(addend, left, right);
  // Outputs that oneDNN can write to, and others.
  for (at::Tensor out : {at::full({256, 300}, NAN), at::full({300, 256}, NAN).t()}) {
    at::mm_out(out, left, right);
    EXPECT_TRUE(at::allclose(out, product, 1e-5, 1e-4));
    at::addmm_out(out, addend, left, right);
    EXPECT_TRUE(at::allclose(out, sum, 1e-5, 1e-4));
  }
  at::Tensor empty = at::empty({0});
  at::mm_out(empty, left, right);
  EXPECT_TRUE(at::allclose(empty, product, 1e-5, 1e-4));
}

TEST_F(MatrixProductsTest, ThoseOfCompiledStepsAreTheSame) {
  at::Tensor left = at::randn({256, 512});
  at::Tensor right = at::randn({512, 300});
  at::Tensor addend = at::randn({300});
  at::Tensor out = at::empty({256, 300});
  const auto handle = torch::aot_inductor::tensor_pointer_to_tensor_handle;
  ASSERT_EQ(aoti_torch_cpu_mm_out(handle(&out), handle(&left), handle(&right)), AOTI_TORCH_SUCCESS);
  EXPECT_TRUE(at::equal(out, at::mm(left, right)));
  ASSERT_EQ(
      aoti_torch_cpu_addmm_out(handle(&out), handle(&addend), handle(&left), handle(&right), 1, 1),
      AOTI_TORCH_SUCCESS);
  EXPECT_TRUE(at::equal(out, at::addmm(addend, left, right)));
  at::Tensor lefts = at::randn({4, 12, 32}, at::kBFloat16);
  at::Tensor rights = at::randn({4, 32, 12}, at::kBFloat16);
  at::Tensor addends = at::randn({4, 12, 12}, at::kBFloat16);
  at::Tensor outs = at::empty({4, 12, 12}, at::kBFloat16);
  ASSERT_EQ(aoti_torch_cpu_bmm_out(handle(&outs), handle(&lefts), handle(&rights)),
            AOTI_TORCH_SUCCESS);
  EXPECT_TRUE(at::equal(outs, at::bmm(lefts, rights)));
  ASSERT_EQ(aoti_torch_cpu_baddbmm_out(handle(&outs), handle(&addends), handle(&lefts),
                                       handle(&rights), 1, 1),
            AOTI_TORCH_SUCCESS);
  EXPECT_TRUE(at::equal(outs, at::baddbmm(addends, lefts, rights)));
  // If LibTorch refuses a call, the C interface returns an error code and does not throw.
  EXPECT_EQ(aoti_torch_cpu_mm_out(handle(&out), handle(&left), handle(&left)), AOTI_TORCH_FAILURE);
}

TEST_F(MatrixProductsTest, ScaleAsAddmmDoes) {
  const at::Tensor left = at::randn({256, 256});
  const at::Tensor right = at::randn({256, 256});
  const at::Tensor addend = at::randn({256});
  const at::Tensor exact = at::mm(left.to(at::kDouble), right.to(at::kDouble));
  ExpectNear(at::addmm(addend, left, right, 2, 0.5), 2 * addend + 0.5 * exact, 512);
  ExpectNear(at::addmm(addend, left, right, 1, 0), addend.expand({256, 256}).to(at::kDouble), 1);
  ExpectNear(at::addmm(at::full({256}, NAN), left, right, 0, 1), exact, 256);
}

TEST_F(MatrixProductsTest, OtherKindsStayAsTheyAre) {
  const at::Tensor left = at::randn({256, 256});
  for (const at::ScalarType type : {at::kDouble, at::kBFloat16, at::kHalf}) {
    const at::Tensor product = at::mm(left.to(type), left.to(type));
    EXPECT_EQ(product.scalar_type(), type);
    EXPECT_LE((product.to(at::kDouble) - at::mm(left.to(at::kDouble), left.to(at::kDouble)))
                  .abs()
                  .max()
                  .item<double>(),
              1);
  }
  EXPECT_TRUE(at::equal(at::mm(at::full({200, 200}, 2, at::kLong), at::ones({200, 200}, at::kLong)),
                        at::full({200, 200}, 400, at::kLong)));
}

TEST_F(MatrixProductsTest, ThoseThatDoNotFitAreRefusedAsBefore) {
  const auto refusal = [](const auto& work) -> std::string {
    try {
      work();
    } catch (const c10::Error& error) {
      return error.what_without_backtrace();
    }
    return "";
  };
  const at::Tensor left = at::randn({512, 512});
  EXPECT_EQ(refusal([&] {
              at::mm(left, at::randn({511, 512}));
            }),
            "mat1 and mat2 shapes cannot be multiplied (512x512 and 511x512)");
  EXPECT_NE(refusal([&] { at::mm(left, left.to(at::kDouble)); }), "");
  EXPECT_NE(refusal([&] { at::addmm(at::randn({511}), left, left); }), "");
}

TEST_F(MatrixProductsTest, GradientsGoThroughThem) {
  torch::nn::Linear layer(256, 300);
  const at::Tensor input = at::randn({4, 64, 256});
  layer->forward(input).square().sum().backward();
  const at::Tensor weight = layer->weight.detach().to(at::kDouble).requires_grad_();
  const at::Tensor bias = layer->bias.detach().to(at::kDouble).requires_grad_();
  at::linear(input.to(at::kDouble), weight, bias).square().sum().backward();
  ExpectNear(layer->weight.grad(), weight.grad(), 4096);
  ExpectNear(layer->bias.grad(), bias.grad(), 4096);
}

TEST_F(MatrixProductsTest, AreTheSameToTheBitEachTime) {
  const at::Tensor left = at::randn({512, 2048});
  const at::Tensor right = at::randn({300, 2048});
  const at::Tensor once = at::mm(left, right.t());
  for (int i = 0; i < 20; ++i) EXPECT_TRUE(at::equal(once, at::mm(left, right.t())));
}

}  // namespace
}  // namespace genesis
