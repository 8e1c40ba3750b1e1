// The loops of depthwise_convolution.cc, which includes this file once per set of vector
// instructions, between pragmas that enable them, in a namespace that defines kLanes. They work on
// tiles: rows of one image, kLanes channels of each position side by side, including the zeros of
// the padding, so that no loop needs bounds checks.

#define GENESIS_UNROLLED _Pragma("GCC unroll 8")

using Floats = float __attribute__((vector_size(kLanes * sizeof(float))));

GENESIS_INLINE Floats Load(const float* from) {
  Floats values;
  std::memcpy(&values, from, sizeof(values));
  return values;
}

GENESIS_INLINE void Store(Floats values, float* to) { std::memcpy(to, &values, sizeof(values)); }

// Copies `count` positions of a row, with the distance `apart` at the destination.
GENESIS_INLINE void CopyRow(const Map& map, const float* from, int64_t channels, int64_t count,
                            int64_t apart, float* to) {
  const int64_t next = map.strides[3];
  if (map.strides[1] == 1 && channels == kLanes) {
    for (int64_t i = 0; i < count; ++i) Store(Load(from + i * next), to + i * apart * kLanes);
    return;
  }
  for (int64_t lane = 0; lane < channels; ++lane) {
    const float* const numbers = from + lane * map.strides[1];
    for (int64_t i = 0; i < count; ++i) to[i * apart * kLanes + lane] = numbers[i * next];
  }
}

// Fills the tile: column c of the map moves to c * apart + offset, and likewise for rows.
void Fill(const Map& map, const Geometry& by, const Band& band, const Tile& tile) {
  std::memset(tile.numbers, 0, tile.rows * tile.columns * kLanes * sizeof(float));
  std::memset(tile.is_empty, 1, tile.rows);
  const int64_t apart = by.apart[1];
  const int64_t offset = by.padding[1] - band.first_column * by.stride[1];
  const int64_t first = offset < 0 ? (apart - 1 - offset) / apart : 0;
  int64_t end = tile.columns > offset ? (tile.columns - 1 - offset) / apart + 1 : 0;
  if (end > map.width) end = map.width;
  if (end <= first) return;
  const float* const corner = map.data + band.image * map.strides[0] +
                              band.channel * map.strides[1] + first * map.strides[3];
  for (int64_t row = 0; row < map.height; ++row) {
    const int64_t place = row * by.apart[0] + by.padding[0] - band.first_row * by.stride[0];
    if (place < 0 || place >= tile.rows) continue;
    tile.is_empty[place] = 0;
    CopyRow(map, corner + row * map.strides[2], band.channels, end - first, apart,
            tile.numbers + (place * tile.columns + first * apart + offset) * kLanes);
  }
}

// Sums over the kernel, for kCount adjacent positions of a row.
template <int kCount>
GENESIS_INLINE void SumTaps(const Tile& tile, const Geometry& by, const float* taps, Floats bias,
                            int64_t row, int64_t column, float* to) {
  Floats sums[kCount];
  GENESIS_UNROLLED
  for (int i = 0; i < kCount; ++i) sums[i] = bias;
  const int64_t next = by.stride[1] * kLanes;
  for (int64_t y = 0; y < by.kernel[0]; ++y) {
    const int64_t from_row = row * by.stride[0] + y * by.dilation[0];
    if (tile.is_empty[from_row]) continue;
    const float* from = tile.numbers + (from_row * tile.columns + column * by.stride[1]) * kLanes;
    for (int64_t x = 0; x < by.kernel[1]; ++x, from += by.dilation[1] * kLanes) {
      const Floats tap = Load(taps + (y * by.kernel[1] + x) * kLanes);
      GENESIS_UNROLLED
      for (int i = 0; i < kCount; ++i) sums[i] += Load(from + i * next) * tap;
    }
  }
  GENESIS_UNROLLED
  for (int i = 0; i < kCount; ++i) Store(sums[i], to + i * kLanes);
}

// Copies the sums of a row to a map.
GENESIS_INLINE void CopyBack(const float* sums, const Map& out, int64_t channels, int64_t count,
                             float* to) {
  const int64_t next = out.strides[3];
  if (out.strides[1] == 1 && channels == kLanes) {
    for (int64_t i = 0; i < count; ++i) Store(Load(sums + i * kLanes), to + i * next);
    return;
  }
  for (int64_t lane = 0; lane < channels; ++lane) {
    float* const numbers = to + lane * out.strides[1];
    for (int64_t i = 0; i < count; ++i) numbers[i * next] = sums[i * kLanes + lane];
  }
}

// Computes a band. `bias` has kLanes numbers, `taps` kLanes for each position of the kernel, `sums`
// kLanes for each position of a row of the result.
void Convolve(const Map& map, const Geometry& by, const Band& band, const float* taps,
              const float* bias, const Tile& tile, float* sums, const Map& out) {
  Fill(map, by, band, tile);
  const Floats start = Load(bias);
  for (int64_t row = 0; row < band.rows; ++row) {
    int64_t column = 0;
    for (; column + 8 <= band.width; column += 8) {
      SumTaps<8>(tile, by, taps, start, row, column, sums + column * kLanes);
    }
    for (; column + 4 <= band.width; column += 4) {
      SumTaps<4>(tile, by, taps, start, row, column, sums + column * kLanes);
    }
    for (; column < band.width; ++column) {
      SumTaps<1>(tile, by, taps, start, row, column, sums + column * kLanes);
    }
    CopyBack(sums, out, band.channels, band.width,
             out.data + band.image * out.strides[0] + band.channel * out.strides[1] +
                 (band.first_row + row) * out.strides[2] + band.first_column * out.strides[3]);
  }
}

// Adds products along a row to the sums of kTaps positions of the kernel, kAtOnce columns at a
// time. Each of these columns has a separate sum to hide the latency of the addition.
template <int kTaps, int kAtOnce>
GENESIS_INLINE void AddRow(const float* gradient, const float* input, int64_t width, int64_t stride,
                           int64_t dilation, float* to) {
  Floats sums[kTaps * kAtOnce] = {};
  int64_t column = 0;
  for (; column + kAtOnce <= width; column += kAtOnce) {
    GENESIS_UNROLLED
    for (int each = 0; each < kAtOnce; ++each) {
      const Floats arriving = Load(gradient + (column + each) * kLanes);
      const float* const from = input + (column + each) * stride;
      GENESIS_UNROLLED
      for (int i = 0; i < kTaps; ++i) {
        sums[each * kTaps + i] += arriving * Load(from + i * dilation);
      }
    }
  }
  for (; column < width; ++column) {
    const Floats arriving = Load(gradient + column * kLanes);
    GENESIS_UNROLLED
    for (int i = 0; i < kTaps; ++i) {
      sums[i] += arriving * Load(input + column * stride + i * dilation);
    }
  }
  GENESIS_UNROLLED
  for (int i = 0; i < kTaps; ++i) {
    Floats sum = sums[i];
    GENESIS_UNROLLED
    for (int each = 1; each < kAtOnce; ++each) sum += sums[each * kTaps + i];
    Store(Load(to + i * kLanes) + sum, to + i * kLanes);
  }
}

constexpr int64_t kTapsAtOnce = 7;

void AddTaps(int64_t taps, const float* gradient, const float* input, int64_t width, int64_t stride,
             int64_t dilation, float* to) {
  switch (taps) {
    case 1:
      return AddRow<1, 8>(gradient, input, width, stride, dilation, to);
    case 2:
      return AddRow<2, 4>(gradient, input, width, stride, dilation, to);
    case 3:
      return AddRow<3, 3>(gradient, input, width, stride, dilation, to);
    case 4:
      return AddRow<4, 2>(gradient, input, width, stride, dilation, to);
    case 5:
      return AddRow<5, 2>(gradient, input, width, stride, dilation, to);
    case 6:
      return AddRow<6, 2>(gradient, input, width, stride, dilation, to);
    default:
      return AddRow<7, 2>(gradient, input, width, stride, dilation, to);
  }
}

// Adds the contribution of the rows of `band` of the gradient to `sums`: kLanes numbers for each
// position of the kernel, then kLanes for the bias.
void AddWeightGradient(const Map& map, const Geometry& by, const Band& band, const Map& gradient,
                       const Tile& input, const Tile& arriving, float* sums) {
  Fill(map, by, band, input);
  Fill(gradient, kSame, band, arriving);
  float* const of_bias = sums + by.kernel[0] * by.kernel[1] * kLanes;
  for (int64_t row = 0; row < band.rows; ++row) {
    const float* const from = arriving.numbers + row * arriving.columns * kLanes;
    Floats sum = {};
    for (int64_t column = 0; column < band.width; ++column) sum += Load(from + column * kLanes);
    Store(Load(of_bias) + sum, of_bias);
    for (int64_t y = 0; y < by.kernel[0]; ++y) {
      const int64_t input_row = row * by.stride[0] + y * by.dilation[0];
      if (input.is_empty[input_row]) continue;
      const float* const numbers = input.numbers + input_row * input.columns * kLanes;
      for (int64_t x = 0; x < by.kernel[1]; x += kTapsAtOnce) {
        const int64_t rest = by.kernel[1] - x;
        AddTaps(rest < kTapsAtOnce ? rest : kTapsAtOnce, from,
                numbers + x * by.dilation[1] * kLanes, band.width, by.stride[1] * kLanes,
                by.dilation[1] * kLanes, sums + (y * by.kernel[1] + x) * kLanes);
      }
    }
  }
}
