#include "trainer/kernels/depthwise_convolution.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <vector>

#include "config/precision/vector_instructions.h"
#include "trainer/kernels/parallel_loop.h"
#include "trainer/kernels/sixteen_floats.h"

namespace genesis {
namespace {

// Approximate number of values of a tile, which stays in a core's cache while the kernel moves over
// it, and maximum number of columns whose products are summed in sequence.
constexpr int64_t kTile = 65536;
constexpr int64_t kColumns = 256;
// Fewer channels would leave lanes empty even in the smaller vectors, of eight.
constexpr int64_t kFewestChannels = 8;
// Groups of images whose weight gradients are summed separately. Independent of the number of
// threads, so that the sums are bitwise the same.
constexpr int64_t kGroups = 8;

// Images of channels x height x width numbers.
struct Map {
  float* data;
  int64_t strides[4];
  int64_t height, width;
};

// Values for rows and for columns. `apart`: distance between values of the map, with zeros between
// them, as in the gradient of a convolution with a stride.
struct Geometry {
  int64_t kernel[2], stride[2], padding[2], dilation[2], apart[2];
};

constexpr Geometry kSame = {{1, 1}, {1, 1}, {0, 0}, {1, 1}, {1, 1}};

// A part of the result that is computed at a time: some channels of some rows of an image.
struct Band {
  int64_t image, channel, channels, first_row, rows, first_column, width;
};

struct Tile {
  float* numbers;
  char* is_empty;  // Per row: whether it is all zeros.
  int64_t rows, columns;
};

}  // namespace
}  // namespace genesis

#if defined(__x86_64__)
GENESIS_BEGIN_AVX512
namespace genesis {
namespace {
namespace avx512_loops {
constexpr int64_t kLanes = 16;
#include "trainer/kernels/depthwise_loops.inl"
}  // namespace avx512_loops
}  // namespace
}  // namespace genesis
GENESIS_END_AVX512

GENESIS_BEGIN_AVX2
namespace genesis {
namespace {
namespace avx2_loops {
constexpr int64_t kLanes = 8;
#include "trainer/kernels/depthwise_loops.inl"
}  // namespace avx2_loops
}  // namespace
}  // namespace genesis
GENESIS_END_AVX2
#endif

namespace genesis {
namespace {

// The functions of depthwise_loops.inl, compiled for one set of vector instructions.
struct Loops {
  int64_t lanes;
  void (*convolve)(const Map& map, const Geometry& by, const Band& band, const float* taps,
                   const float* bias, const Tile& tile, float* sums, const Map& out);
  void (*add_weight_gradient)(const Map& map, const Geometry& by, const Band& band,
                              const Map& gradient, const Tile& input, const Tile& arriving,
                              float* sums);
};

// Returns null if the processor has no suitable vectors.
const Loops* LoopsOfProcessor() {
#if defined(__x86_64__)
  static constexpr Loops kSixteen = {16, &avx512_loops::Convolve, &avx512_loops::AddWeightGradient};
  static constexpr Loops kEight = {8, &avx2_loops::Convolve, &avx2_loops::AddWeightGradient};
  if (HasAvx512()) return &kSixteen;
  if (HasAvx2()) return &kEight;
#endif
  return nullptr;
}

// Returns how many rows (`which` 0) or columns (1) contribute to `count` of the result.
int64_t Reach(const Geometry& by, int which, int64_t count) {
  return (count - 1) * by.stride[which] + by.dilation[which] * (by.kernel[which] - 1) + 1;
}

// The bands into which a result is cut.
class Bands {
 public:
  Bands(const Geometry& by, const Map& result, int64_t channels, int64_t lanes)
      : channels_(channels),
        height_(result.height),
        width_(result.width),
        lanes_(lanes),
        columns_(std::min(width_, kColumns)),
        rows_(std::clamp<int64_t>(kTile / (columns_ * by.stride[1] * by.stride[0] * lanes), 1,
                                  height_)) {}

  int64_t rows() const { return rows_; }
  int64_t columns() const { return columns_; }
  int64_t blocks() const { return (channels_ + lanes_ - 1) / lanes_; }
  int64_t of_a_map() const { return (height_ + rows_ - 1) / rows_ * Across(); }

  Band At(int64_t image, int64_t block, int64_t which) const {
    const int64_t channel = block * lanes_;
    const int64_t row = which / Across() * rows_, column = which % Across() * columns_;
    return {image,
            channel,
            std::min(lanes_, channels_ - channel),
            row,
            std::min(rows_, height_ - row),
            column,
            std::min(columns_, width_ - column)};
  }

 private:
  int64_t Across() const { return (width_ + columns_ - 1) / columns_; }

  const int64_t channels_, height_, width_, lanes_, columns_, rows_;
};

// The memory of a tile, large enough for any of the bands.
class TileMemory {
 public:
  TileMemory(const Geometry& by, const Bands& bands, int64_t lanes)
      : by_(by),
        numbers_(at::empty({Reach(by, 0, bands.rows()) * Reach(by, 1, bands.columns()) * lanes},
                           at::kFloat)),
        is_empty_(Reach(by, 0, bands.rows())) {}

  Tile For(const Band& band) {
    return {numbers_.mutable_data_ptr<float>(), is_empty_.data(), Reach(by_, 0, band.rows),
            Reach(by_, 1, band.width)};
  }

 private:
  const Geometry by_;
  at::Tensor numbers_;
  std::vector<char> is_empty_;
};

// Converts one-dimensional inputs to maps with one row.
at::Tensor AsMaps(const at::Tensor& tensor) {
  return tensor.dim() == 3 ? tensor.unsqueeze(2) : tensor;
}

Map MapOf(const at::Tensor& maps) {
  return {maps.data_ptr<float>(),
          {maps.stride(0), maps.stride(1), maps.stride(2), maps.stride(3)},
          maps.size(2),
          maps.size(3)};
}

Geometry GeometryOf(const at::Tensor& weight, const ConvolutionSettings& settings) {
  const bool one = weight.dim() == 3;
  const auto rows = [&](at::IntArrayRef values, int64_t of_one) {
    return one ? of_one : values.front();
  };
  return {{rows(weight.sizes().slice(2), 1), weight.size(-1)},
          {rows(settings.stride, 1), settings.stride.back()},
          {rows(settings.padding, 0), settings.padding.back()},
          {rows(settings.dilation, 1), settings.dilation.back()},
          {1, 1}};
}

// Returns the convolution, with a flipped kernel, that computes the gradient of this one's input.
Geometry Reversed(const Geometry& by) {
  Geometry made = by;
  for (int i = 0; i < 2; ++i) {
    made.stride[i] = 1;
    made.padding[i] = by.dilation[i] * (by.kernel[i] - 1) - by.padding[i];
    made.apart[i] = by.stride[i];
  }
  return made;
}

int64_t Places(const Geometry& by) { return by.kernel[0] * by.kernel[1]; }

// Returns a weight [channels, 1, height, width] in the order of the loops: for each kernel position
// (reversed if `turned`) `lanes` channels, then the next `lanes` channels. Missing channels are 0.
std::vector<float> Taps(const at::Tensor& weight, int64_t lanes, bool turned) {
  const at::Tensor rows = weight.reshape({weight.size(0), -1}).to(at::kFloat).contiguous();
  const int64_t channels = rows.size(0), places = rows.size(1);
  const float* const from = rows.const_data_ptr<float>();
  std::vector<float> taps((channels + lanes - 1) / lanes * lanes * places);
  for (int64_t channel = 0; channel < channels; ++channel) {
    float* const to = &taps[channel / lanes * lanes * places + channel % lanes];
    for (int64_t place = 0; place < places; ++place) {
      to[place * lanes] = from[channel * places + (turned ? places - 1 - place : place)];
    }
  }
  return taps;
}

void ConvolveAll(const Loops& loops, const at::Tensor& maps, const Geometry& by,
                 const std::vector<float>& taps, const std::vector<float>& bias, at::Tensor& out) {
  const Map from = MapOf(maps), to = MapOf(out);
  const Bands bands(by, to, out.size(1), loops.lanes);
  const int64_t of_an_image = bands.blocks() * bands.of_a_map();
  ParallelLoop(out.size(0) * of_an_image, 1, [&](int64_t begin, int64_t end) {
    TileMemory memory(by, bands, loops.lanes);
    std::vector<float> sums(bands.columns() * loops.lanes);
    for (int64_t i = begin; i < end; ++i) {
      const int64_t block = i % bands.blocks();
      const Band band = bands.At(i / of_an_image, block, i % of_an_image / bands.blocks());
      loops.convolve(from, by, band, &taps[block * loops.lanes * Places(by)],
                     &bias[block * loops.lanes], memory.For(band), sums.data(), to);
    }
  });
}

// Returns [channels, places + 1]: the gradients of the weight, then the gradient of the bias.
at::Tensor WeightGradient(const Loops& loops, const at::Tensor& maps, const at::Tensor& arriving,
                          const Geometry& by) {
  const Map input = MapOf(maps), gradient = MapOf(arriving);
  const int64_t images = maps.size(0), channels = maps.size(1);
  const Bands bands(by, gradient, channels, loops.lanes);
  const int64_t groups = std::min(images, kGroups), of_a_group = (images + groups - 1) / groups;
  at::Tensor sums = at::zeros({groups, bands.blocks(), Places(by) + 1, loops.lanes}, at::kFloat);
  float* const to = sums.mutable_data_ptr<float>();
  ParallelLoop(groups * bands.blocks(), 1, [&](int64_t begin, int64_t end) {
    TileMemory of_input(by, bands, loops.lanes);
    TileMemory of_gradient(kSame, bands, loops.lanes);
    for (int64_t i = begin; i < end; ++i) {
      const int64_t first = i / bands.blocks() * of_a_group;
      for (int64_t image = first; image < std::min(images, first + of_a_group); ++image) {
        for (int64_t which = 0; which < bands.of_a_map(); ++which) {
          const Band band = bands.At(image, i % bands.blocks(), which);
          loops.add_weight_gradient(input, by, band, gradient, of_input.For(band),
                                    of_gradient.For(band), to + i * sums.stride(1));
        }
      }
    }
  });
  return sums.sum(0).transpose(1, 2).reshape({-1, Places(by) + 1}).narrow(0, 0, channels);
}

// Returns the sizes of the result; 0 if the kernel does not fit.
std::array<int64_t, 2> Results(const at::Tensor& maps, const Geometry& by) {
  std::array<int64_t, 2> sizes;
  for (int i = 0; i < 2; ++i) {
    const int64_t room = maps.size(2 + i) + 2 * by.padding[i] - Reach(by, i, 1);
    sizes[i] = room < 0 ? 0 : room / by.stride[i] + 1;
  }
  return sizes;
}

// Returns the memory order of LibTorch's result: channels_last for maps if the input or the weights
// have it, otherwise contiguous.
at::MemoryFormat OrderOf(const at::Tensor& input, const at::Tensor& weight) {
  const bool last =
      input.dim() == 4 && (input.suggest_memory_format() == at::MemoryFormat::ChannelsLast ||
                           weight.suggest_memory_format() == at::MemoryFormat::ChannelsLast);
  return last ? at::MemoryFormat::ChannelsLast : at::MemoryFormat::Contiguous;
}

bool IsOfCpu(const at::Tensor& tensor) {
  return tensor.layout() == at::kStrided && tensor.device().is_cpu() && tensor.numel() > 0;
}

bool AreSizes(at::IntArrayRef values, size_t count, int64_t least) {
  return values.size() == count &&
         std::all_of(values.begin(), values.end(), [&](int64_t value) { return value >= least; });
}

bool IsDepthwise(const at::Tensor& input, const at::Tensor& weight,
                 const ConvolutionSettings& settings) {
  const at::ScalarType type = input.scalar_type();
  if (settings.transposed || !IsOfCpu(input) || !IsOfCpu(weight) ||
      (type != at::kFloat && type != at::kBFloat16) || weight.scalar_type() != type ||
      (input.dim() != 3 && input.dim() != 4) || weight.dim() != input.dim()) {
    return false;
  }
  const size_t dimensions = input.dim() - 2;
  return settings.groups >= kFewestChannels && input.size(1) == settings.groups &&
         weight.size(0) == settings.groups && weight.size(1) == 1 &&
         AreSizes(settings.stride, dimensions, 1) && AreSizes(settings.padding, dimensions, 0) &&
         AreSizes(settings.dilation, dimensions, 1);
}

at::Tensor MapsInFp32(const at::Tensor& tensor) { return AsMaps(tensor).to(at::kFloat); }

// Converts to the type and the dimensions of `like`.
at::Tensor As(const at::Tensor& like, const at::Tensor& maps) {
  return (like.dim() == 3 ? maps.squeeze(2) : maps).to(like.scalar_type());
}

}  // namespace

DepthwiseGains GainsOfDepthwise(const at::Tensor& input, const at::Tensor& weight,
                                const ConvolutionSettings& settings) {
  if (LoopsOfProcessor() == nullptr || !IsDepthwise(input, weight, settings)) return {};
  const Geometry by = GeometryOf(weight, settings);
  const auto [height, width] = Results(AsMaps(input), by);
  if (height == 0 || width == 0 || Reach(by, 0, 1) * Reach(by, 1, 1) > kTile) return {};
  // oneDNN's loops support kernels of up to three columns, and maps of more than two rows and
  // columns.
  const bool is_small = std::min(height, width) < 3;
  return {is_small, is_small || by.kernel[1] > 3};
}

at::Tensor DepthwiseConvolution(const at::Tensor& input, const at::Tensor& weight,
                                const std::optional<at::Tensor>& bias,
                                const ConvolutionSettings& settings) {
  const Loops& loops = *LoopsOfProcessor();
  const at::Tensor maps = MapsInFp32(input);
  const Geometry by = GeometryOf(weight, settings);
  const auto [height, width] = Results(maps, by);
  at::Tensor out = at::empty({maps.size(0), maps.size(1), height, width},
                             maps.options().memory_format(OrderOf(input, weight)));
  std::vector<float> start(out.size(1) + loops.lanes);
  if (bias.has_value() && bias->defined()) {
    const at::Tensor values = bias->to(at::kFloat).contiguous();
    std::memcpy(start.data(), values.const_data_ptr<float>(), values.nbytes());
  }
  ConvolveAll(loops, maps, by, Taps(weight, loops.lanes, /*turned=*/false), start, out);
  return As(input, out);
}

at::Tensor DepthwiseInputGradient(const at::Tensor& out_gradient, const at::Tensor& input,
                                  const at::Tensor& weight, const ConvolutionSettings& settings) {
  const Loops& loops = *LoopsOfProcessor();
  at::Tensor made =
      at::empty(AsMaps(input).sizes(),
                input.options().dtype(at::kFloat).memory_format(OrderOf(input, weight)));
  ConvolveAll(loops, MapsInFp32(out_gradient), Reversed(GeometryOf(weight, settings)),
              Taps(weight, loops.lanes, /*turned=*/true),
              std::vector<float>(made.size(1) + loops.lanes), made);
  return As(input, made);
}

DepthwiseWeightGradients DepthwiseWeightGradient(const at::Tensor& out_gradient,
                                                 const at::Tensor& input, const at::Tensor& weight,
                                                 const ConvolutionSettings& settings) {
  const Geometry by = GeometryOf(weight, settings);
  const at::Tensor sums =
      WeightGradient(*LoopsOfProcessor(), MapsInFp32(input), MapsInFp32(out_gradient), by);
  const at::Tensor of_weight = sums.narrow(1, 0, Places(by)).reshape(weight.sizes());
  return {
      at::empty_like(weight).copy_(of_weight),
      sums.select(1, Places(by)).to(input.scalar_type(), /*non_blocking=*/false, /*copy=*/true)};
}

}  // namespace genesis
