#include "trainer/kernels/convolutions.h"

#include <torch/csrc/inductor/aoti_torch/generated/c_shim_cpu.h>
#include <torch/csrc/inductor/aoti_torch/utils.h>
#include <torch/torch.h>

#include <array>
#include <memory>
#include <optional>
#include <vector>

#include "config/precision/vector_instructions.h"
#include "gtest/gtest.h"
#include "trainer/kernels/depthwise_convolution.h"
#include "trainer/kernels/own_kernels.h"

namespace genesis {
namespace {

class ConvolutionsTest : public testing::Test {
 protected:
  static void SetUpTestSuite() {
    UseOwnKernels();
    torch::manual_seed(1);
  }
};

struct Kind {
  int64_t channels, out_channels, groups, kernel, stride, padding;
  bool transposed, channels_last, has_bias;
};

const std::vector<Kind> kKinds = {
    {8, 12, 1, 3, 1, 1, false, false, true},   {8, 12, 1, 3, 2, 1, false, true, false},
    {16, 16, 16, 3, 1, 1, false, true, false}, {16, 16, 16, 7, 1, 3, false, false, true},
    {8, 16, 4, 1, 1, 0, false, true, true},    {8, 6, 1, 2, 2, 0, true, false, true},
};

// The operands of a layer and the gradient of its output.
struct Layer {
  at::Tensor input, weight, out_gradient;
  std::optional<at::Tensor> bias;
};

Layer Make(const Kind& kind, at::ScalarType type) {
  const auto laid_out = [&](const at::Tensor& tensor) {
    return tensor.to(type).contiguous(kind.channels_last ? at::MemoryFormat::ChannelsLast
                                                         : at::MemoryFormat::Contiguous);
  };
  Layer layer;
  layer.input = laid_out(at::randn({4, kind.channels, 9, 10}));
  const int64_t from = kind.transposed ? kind.channels : kind.out_channels;
  const int64_t to = kind.transposed ? kind.out_channels : kind.channels;
  layer.weight = laid_out(at::randn({from, to / kind.groups, kind.kernel, kind.kernel}));
  if (kind.has_bias) layer.bias = at::randn({kind.out_channels}).to(type);
  return layer;
}

at::Tensor Forward(const Kind& kind, const Layer& layer) {
  return at::convolution(layer.input, layer.weight, layer.bias, {kind.stride, kind.stride},
                         {kind.padding, kind.padding}, {1, 1}, kind.transposed, {0, 0},
                         kind.groups);
}

std::array<at::Tensor, 3> Backward(const Kind& kind, const Layer& layer,
                                   std::array<bool, 3> wanted) {
  const std::vector<int64_t> sizes = {kind.out_channels};
  auto [input, weight, bias] = at::convolution_backward(
      layer.out_gradient, layer.input, layer.weight,
      kind.has_bias ? at::OptionalIntArrayRef(sizes) : std::nullopt, {kind.stride, kind.stride},
      {kind.padding, kind.padding}, {1, 1}, kind.transposed, {0, 0}, kind.groups, wanted);
  return {input, weight, bias};
}

Layer Converted(const Layer& layer, at::ScalarType type) {
  Layer made{layer.input.to(type), layer.weight.to(type), {}, std::nullopt};
  if (layer.out_gradient.defined()) made.out_gradient = layer.out_gradient.to(type);
  if (layer.bias) made.bias = layer.bias->to(type);
  return made;
}

void ExpectNear(const at::Tensor& found, const at::Tensor& exact, at::ScalarType type) {
  ASSERT_EQ(found.scalar_type(), type);
  ASSERT_EQ(found.sizes(), exact.sizes());
  const double error = ((found.to(at::kDouble) - exact).norm() / exact.norm()).item<double>();
  // A BF16 result that is rounded once has an average error of 0.17 %; LibTorch's may have more.
  const double bf16 = MultipliesBf16InFp32() ? 2e-3 : 1e-2;
  EXPECT_LE(error, type == at::kFloat ? 1e-6 : bf16);
}

TEST_F(ConvolutionsTest, AreThoseOfDoublePrecisionRounded) {
  for (const Kind& kind : kKinds) {
    for (const at::ScalarType type : {at::kFloat, at::kBFloat16}) {
      Layer layer = Make(kind, type);
      const at::Tensor out = Forward(kind, layer);
      ExpectNear(out, Forward(kind, Converted(layer, at::kDouble)), type);
      EXPECT_EQ(out.is_contiguous(at::MemoryFormat::ChannelsLast), kind.channels_last);
      layer.out_gradient = at::randn_like(out);
      const std::array<bool, 3> wanted = {true, true, kind.has_bias};
      const auto found = Backward(kind, layer, wanted);
      const auto exact = Backward(kind, Converted(layer, at::kDouble), wanted);
      for (size_t i = 0; i < found.size(); ++i) {
        ASSERT_EQ(found[i].defined(), wanted[i]);
        if (wanted[i]) ExpectNear(found[i], exact[i], type);
      }
    }
  }
}

TEST_F(ConvolutionsTest, GiveNoGradientThatIsNotWanted) {
  Layer layer = Make(kKinds[0], at::kBFloat16);
  layer.out_gradient = at::randn_like(Forward(kKinds[0], layer));
  const auto found = Backward(kKinds[0], layer, {false, true, false});
  EXPECT_FALSE(found[0].defined());
  EXPECT_TRUE(found[1].defined());
  EXPECT_FALSE(found[2].defined());
}

TEST_F(ConvolutionsTest, AreDifferentiatedByAutograd) {
  Layer layer = Make(kKinds[0], at::kBFloat16);
  const at::Tensor weight = layer.weight.clone().requires_grad_();
  const at::Tensor out = Forward(kKinds[0], {layer.input, weight, {}, layer.bias});
  layer.out_gradient = at::randn_like(out);
  out.backward(layer.out_gradient);
  EXPECT_TRUE(at::equal(weight.grad(), Backward(kKinds[0], layer, {false, true, false})[1]));
}

// Wraps a tensor as compiled steps do.
AtenTensorHandle Handle(at::Tensor* tensor) {
  return torch::aot_inductor::tensor_pointer_to_tensor_handle(tensor);
}
std::unique_ptr<at::Tensor> Owned(AtenTensorHandle made) {
  return std::unique_ptr<at::Tensor>(torch::aot_inductor::tensor_handle_to_tensor_pointer(made));
}

TEST_F(ConvolutionsTest, ThoseOfCompiledStepsAreTheSame) {
  const Kind& kind = kKinds[0];
  Layer layer = Make(kind, at::kBFloat16);
  const std::array<int64_t, 2> stride = {1, 1}, padding = {1, 1}, none = {0, 0};
  AtenTensorHandle bias = Handle(&*layer.bias);
  AtenTensorHandle made = nullptr;
  ASSERT_EQ(aoti_torch_cpu_convolution(Handle(&layer.input), Handle(&layer.weight), &bias,
                                       stride.data(), 2, padding.data(), 2, stride.data(), 2, 0,
                                       none.data(), 2, 1, &made),
            AOTI_TORCH_SUCCESS);
  const auto out = Owned(made);
  EXPECT_TRUE(at::equal(*out, Forward(kind, layer)));

  layer.out_gradient = at::randn_like(*out);
  const std::array<int64_t, 1> sizes = {kind.out_channels};
  const int64_t* bias_sizes = sizes.data();
  const std::array<int32_t, 3> wanted = {0, 1, 1};
  AtenTensorHandle to_weight = nullptr, to_bias = nullptr;
  ASSERT_EQ(aoti_torch_cpu_convolution_backward(
                Handle(&layer.out_gradient), Handle(&layer.input), Handle(&layer.weight),
                &bias_sizes, 1, stride.data(), 2, padding.data(), 2, stride.data(), 2, 0,
                none.data(), 2, 1, wanted.data(), 3, nullptr, &to_weight, &to_bias),
            AOTI_TORCH_SUCCESS);
  const auto expected = Backward(kind, layer, {false, true, true});
  EXPECT_TRUE(at::equal(*Owned(to_weight), expected[1]));
  EXPECT_TRUE(at::equal(*Owned(to_bias), expected[2]));

  // If LibTorch refuses a call, the C interface returns an error code and does not throw.
  EXPECT_EQ(aoti_torch_cpu_convolution(Handle(&layer.input), Handle(&layer.weight), nullptr,
                                       stride.data(), 2, padding.data(), 2, stride.data(), 2, 0,
                                       none.data(), 2, 3, &made),
            AOTI_TORCH_FAILURE);
}

// oneDNN is used for the result and the gradient of the input, and own loops for the gradient of
// the weights, so that each is computed by the faster implementation.
TEST_F(ConvolutionsTest, ThoseOfCompiledStepsSumGradientsOfChannelsByThemselves) {
  if (!HasAvx2()) GTEST_SKIP() << "needs AVX2";
  const Kind kind = {16, 16, 16, 7, 1, 3, false, true, true};
  Layer layer = Make(kind, at::kFloat);
  layer.out_gradient = at::randn_like(Forward(kind, layer));
  const std::array<int64_t, 2> stride = {1, 1}, padding = {3, 3}, none = {0, 0};
  const int64_t sizes = 16;
  const int64_t* bias_sizes = &sizes;
  const std::array<int32_t, 3> wanted = {1, 1, 1};
  AtenTensorHandle to_input = nullptr, to_weight = nullptr, to_bias = nullptr;
  ASSERT_EQ(aoti_torch_cpu_convolution_backward(
                Handle(&layer.out_gradient), Handle(&layer.input), Handle(&layer.weight),
                &bias_sizes, 1, stride.data(), 2, padding.data(), 2, stride.data(), 2, 0,
                none.data(), 2, 16, wanted.data(), 3, &to_input, &to_weight, &to_bias),
            AOTI_TORCH_SUCCESS);
  EXPECT_TRUE(at::equal(*Owned(to_input), Backward(kind, layer, {true, false, false})[0]));
  const auto ours = DepthwiseWeightGradient(layer.out_gradient, layer.input, layer.weight,
                                            {stride, padding, stride, false, 16});
  EXPECT_TRUE(at::equal(*Owned(to_weight), ours.weight));
  EXPECT_TRUE(at::equal(*Owned(to_bias), ours.bias));
}

}  // namespace
}  // namespace genesis
