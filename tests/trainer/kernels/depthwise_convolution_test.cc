#include "trainer/kernels/depthwise_convolution.h"

#include <torch/torch.h>

#include <algorithm>
#include <cstdint>
#include <limits>
#include <optional>
#include <random>
#include <tuple>
#include <vector>

#include "config/precision/vector_instructions.h"
#include "gtest/gtest.h"

namespace genesis {
namespace {

// A convolution in one or two dimensions. Sizes are given per dimension.
struct Layer {
  at::Tensor input, weight;
  std::optional<at::Tensor> bias;
  std::vector<int64_t> stride, padding, dilation;

  int64_t channels() const { return input.size(1); }
  ConvolutionSettings settings() const {
    return {stride, padding, dilation, /*transposed=*/false, channels()};
  }
  Layer As(at::ScalarType type) const {
    Layer made = *this;
    made.input = input.to(type);
    made.weight = weight.to(type);
    if (bias) made.bias = bias->to(type);
    return made;
  }
};

struct Results {
  at::Tensor out, input, weight, bias;
};

at::Tensor LibTorchs(const Layer& layer) {
  const std::vector<int64_t> none(layer.stride.size());
  return at::convolution(layer.input, layer.weight, layer.bias, layer.stride, layer.padding,
                         layer.dilation, false, none, layer.channels());
}

Results LibTorchs(const Layer& layer, const at::Tensor& out_gradient) {
  const std::vector<int64_t> none(layer.stride.size()), sizes = {layer.channels()};
  auto [input, weight, bias] = at::convolution_backward(
      out_gradient, layer.input, layer.weight, sizes, layer.stride, layer.padding, layer.dilation,
      false, none, layer.channels(), {true, true, true});
  return {LibTorchs(layer), input, weight, bias};
}

Results Ours(const Layer& layer, const at::Tensor& out_gradient) {
  const ConvolutionSettings settings = layer.settings();
  auto [weight, bias] = DepthwiseWeightGradient(out_gradient, layer.input, layer.weight, settings);
  return {DepthwiseConvolution(layer.input, layer.weight, layer.bias, settings),
          DepthwiseInputGradient(out_gradient, layer.input, layer.weight, settings), weight, bias};
}

at::MemoryFormat Order(const Layer& layer, bool channels_last) {
  return channels_last && layer.input.dim() == 4 ? at::MemoryFormat::ChannelsLast
                                                 : at::MemoryFormat::Contiguous;
}

void ExpectNear(const at::Tensor& found, const at::Tensor& exact, double most) {
  ASSERT_EQ(found.sizes(), exact.sizes());
  const double size = exact.norm().item<double>();
  EXPECT_LE((found.to(at::kDouble) - exact).norm().item<double>(), most * size + 1e-12);
}

// Returns the strides of dimensions larger than 1, which are the only ones that matter.
std::vector<int64_t> StridesThatCount(const at::Tensor& tensor) {
  std::vector<int64_t> strides;
  for (int64_t i = 0; i < tensor.dim(); ++i) {
    if (tensor.size(i) > 1) strides.push_back(tensor.stride(i));
  }
  return strides;
}

void ExpectAsLibTorch(const Layer& layer) {
  const double most = layer.input.scalar_type() == at::kFloat ? 2e-6 : 4e-3;
  const at::Tensor theirs = LibTorchs(layer);
  const at::Tensor out_gradient = at::randn_like(theirs);
  const Results found = Ours(layer, out_gradient);
  const Results exact = LibTorchs(layer.As(at::kDouble), out_gradient.to(at::kDouble));
  ExpectNear(found.out, exact.out, most);
  ExpectNear(found.input, exact.input, most);
  ExpectNear(found.weight, exact.weight, most);
  ExpectNear(found.bias, exact.bias, most);
  const Results libtorchs = LibTorchs(layer, out_gradient);
  EXPECT_EQ(StridesThatCount(found.out), StridesThatCount(theirs));
  EXPECT_EQ(StridesThatCount(found.input), StridesThatCount(libtorchs.input));
  for (const at::Tensor& each : {found.out, found.input, found.weight, found.bias}) {
    EXPECT_EQ(each.scalar_type(), layer.input.scalar_type());
  }
}

class DepthwiseConvolutionTest : public testing::Test {
 protected:
  void SetUp() override {
    if (!HasAvx2()) GTEST_SKIP() << "needs AVX2";
    torch::manual_seed(1);
  }

  Layer Make(std::vector<int64_t> input, std::vector<int64_t> kernel, int64_t stride = 1,
             int64_t padding = 0, int64_t dilation = 1, bool channels_last = true) {
    Layer layer;
    const size_t count = kernel.size();
    layer.input = at::randn(input);
    kernel.insert(kernel.begin(), {input[1], 1});
    layer.weight = at::randn(kernel);
    layer.bias = at::randn({input[1]});
    layer.stride.assign(count, stride);
    layer.padding.assign(count, padding);
    layer.dilation.assign(count, dilation);
    layer.input = layer.input.contiguous(Order(layer, channels_last));
    layer.weight = layer.weight.contiguous(Order(layer, channels_last));
    return layer;
  }
};

TEST_F(DepthwiseConvolutionTest, IsThatOfDoublePrecisionRounded) {
  for (const bool channels_last : {false, true}) {
    for (const at::ScalarType type : {at::kFloat, at::kBFloat16}) {
      for (const Layer& layer : {
               Make({4, 16, 9, 10}, {7, 7}, 1, 3, 1, channels_last),
               Make({3, 40, 8, 8}, {3, 3}, 2, 1, 1, channels_last),
               Make({2, 21, 11, 5}, {5, 3}, 1, 2, 2, channels_last),
               Make({5, 8, 1, 1}, {7, 7}, 1, 3, 1, channels_last),
               Make({9, 33, 2, 2}, {3, 3}, 1, 1, 1, channels_last),
               Make({1, 64, 6, 7}, {2, 6}, 3, 5, 1, channels_last),
           }) {
        ExpectAsLibTorch(layer.As(type));
      }
    }
  }
}

TEST_F(DepthwiseConvolutionTest, IsSoForRowsAlone) {
  for (const at::ScalarType type : {at::kFloat, at::kBFloat16}) {
    ExpectAsLibTorch(Make({3, 24, 32}, {4}, 1, 3).As(type));
    ExpectAsLibTorch(Make({3, 17, 40}, {5}, 2, 0, 3).As(type));
    Layer turned = Make({3, 20, 16}, {4}, 1, 3).As(type);
    turned.input = at::randn({3, 16, 20}).to(type).transpose(1, 2);
    ExpectAsLibTorch(turned);
  }
}

// Large maps are split into bands of rows, because they do not fit a tile.
TEST_F(DepthwiseConvolutionTest, IsSoForLargeMaps) {
  ExpectAsLibTorch(Make({1, 16, 150, 130}, {7, 7}, 1, 3));
  ExpectAsLibTorch(Make({1, 9, 160, 161}, {5, 5}, 2, 2, 1, /*channels_last=*/false));
  ExpectAsLibTorch(Make({1, 8, 3, 9000}, {3, 3}, 1, 1));
}

TEST_F(DepthwiseConvolutionTest, IsSoForAnySizes) {
  std::mt19937 random(7);
  const auto from = [&](int64_t least, int64_t most) {
    return std::uniform_int_distribution<int64_t>(least, most)(random);
  };
  int made = 0;
  while (made < 60) {
    Layer layer =
        Make({from(1, 10), from(8, 40), from(1, 12), from(1, 12)}, {from(1, 9), from(1, 9)},
             from(1, 3), from(0, 5), from(1, 2), from(0, 1) == 1);
    layer.stride[1] = from(1, 3);
    layer.padding[1] = from(0, 5);
    const auto fits = [&](int i) {
      return layer.input.size(2 + i) + 2 * layer.padding[i] >
             layer.dilation[i] * (layer.weight.size(2 + i) - 1);
    };
    if (!fits(0) || !fits(1)) continue;
    ++made;
    SCOPED_TRACE(testing::Message()
                 << layer.input.sizes() << layer.weight.sizes() << " stride " << layer.stride[0]
                 << ", " << layer.stride[1] << " padding " << layer.padding[0] << ", "
                 << layer.padding[1] << " dilation " << layer.dilation[0]);
    ExpectAsLibTorch(layer);
    if (HasFailure()) return;
  }
}

TEST_F(DepthwiseConvolutionTest, IsTheSameForAnyNumberOfThreads) {
  const Layer layer = Make({6, 40, 20, 20}, {7, 7}, 1, 3);
  const at::Tensor out_gradient = at::randn_like(LibTorchs(layer));
  const int threads = at::get_num_threads();
  at::set_num_threads(1);
  const Results one = Ours(layer, out_gradient);
  at::set_num_threads(3);
  const Results three = Ours(layer, out_gradient);
  at::set_num_threads(threads);
  EXPECT_TRUE(at::equal(one.out, three.out));
  EXPECT_TRUE(at::equal(one.input, three.input));
  EXPECT_TRUE(at::equal(one.weight, three.weight));
  EXPECT_TRUE(at::equal(one.bias, three.bias));
}

TEST_F(DepthwiseConvolutionTest, KeepsWhatIsNotFinite) {
  Layer layer = Make({2, 16, 8, 8}, {5, 5}, 1, 2);
  at::Tensor out_gradient = at::randn_like(LibTorchs(layer));
  layer.input[1][3][4][4] = std::numeric_limits<float>::quiet_NaN();
  const Results found = Ours(layer, out_gradient);
  const at::Tensor channels = at::isfinite(found.weight).flatten(1).all(1);
  EXPECT_FALSE(channels[3].item<bool>());
  EXPECT_EQ(channels.sum().item<int64_t>(), 15);
  EXPECT_EQ(at::isnan(found.out).sum().item<int64_t>(), 25);
}

TEST_F(DepthwiseConvolutionTest, GainsWhereOneDnnHasNoLoops) {
  const auto gains = [](const Layer& layer) {
    const DepthwiseGains found = GainsOfDepthwise(layer.input, layer.weight, layer.settings());
    return std::tuple(found.result, found.weight_gradient);
  };
  EXPECT_EQ(gains(Make({2, 16, 8, 8}, {3, 3}, 1, 1)), std::tuple(false, false));
  EXPECT_EQ(gains(Make({2, 16, 8, 8}, {7, 7}, 1, 3)), std::tuple(false, true));
  EXPECT_EQ(gains(Make({2, 16, 2, 2}, {3, 3}, 1, 1)), std::tuple(true, true));
  EXPECT_EQ(gains(Make({2, 16, 32}, {4}, 1, 3)), std::tuple(true, true));
}

TEST_F(DepthwiseConvolutionTest, LeavesOthersToLibTorch) {
  const Layer layer = Make({2, 16, 2, 2}, {3, 3}, 1, 1);
  const auto gains = [](const Layer& given, bool transposed, int64_t groups) {
    return GainsOfDepthwise(given.input, given.weight,
                            {given.stride, given.padding, given.dilation, transposed, groups})
        .weight_gradient;
  };
  EXPECT_TRUE(gains(layer, false, 16));
  EXPECT_FALSE(gains(layer, true, 16));
  EXPECT_FALSE(gains(layer, false, 8));
  EXPECT_FALSE(gains(layer.As(at::kDouble), false, 16));
  Layer other = layer;
  other.weight = at::randn({32, 1, 3, 3});  // Two output channels per input channel.
  EXPECT_FALSE(gains(other, false, 16));
  other = layer;
  other.stride = {1};
  EXPECT_FALSE(gains(other, false, 16));
  other = layer;
  other.input = at::randn({0, 16, 2, 2});
  EXPECT_FALSE(gains(other, false, 16));
  other = layer;
  other.padding = {0, 0};  // The kernel is larger than the input.
  EXPECT_FALSE(gains(other, false, 16));
  EXPECT_FALSE(gains(Make({2, 4, 2, 2}, {3, 3}, 1, 1), false, 4));
}

}  // namespace
}  // namespace genesis
