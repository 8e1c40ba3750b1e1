#include "trainer/kernels/norms.h"

#include <ATen/ATen.h>
#include <ATen/ops/_foreach_norm_compositeexplicitautograd_dispatch.h>

#include <algorithm>
#include <cmath>

#include "trainer/kernels/parallel_loop.h"
#include "trainer/kernels/sixteen_floats.h"

GENESIS_BEGIN_AVX512

namespace genesis {
namespace {

using avx512::Floats;
using avx512::kLanes;

template <typename T>
double SumOfSquares(const T* values, int64_t count) {
  // Four independent accumulators hide the latency of the addition.
  Floats sums[4] = {};
  int64_t i = 0;
  for (; i + 4 * kLanes <= count; i += 4 * kLanes) {
    for (int64_t j = 0; j < 4; ++j) {
      const Floats some = avx512::Load(values + i + j * kLanes);
      sums[j] += some * some;
    }
  }
  for (; i < count; i += kLanes) {
    const Floats some = avx512::LoadSome(values + i, std::min(kLanes, count - i));
    sums[0] += some * some;
  }
  const Floats sum = (sums[0] + sums[1]) + (sums[2] + sums[3]);
  double total = 0;
  for (int64_t lane = 0; lane < kLanes; ++lane) total += sum[lane];
  return total;
}

}  // namespace
}  // namespace genesis

GENESIS_END_AVX512

namespace genesis {
namespace {

// Number of elements summed in FP32.
constexpr int64_t kNormPart = 65536;

struct Part {
  size_t tensor;
  int64_t first;
};

bool Suits(at::TensorList tensors, const at::Scalar& order, std::optional<at::ScalarType> type) {
  if (!order.equal(2) || type.value_or(at::kFloat) != at::kFloat) return false;
  return std::all_of(tensors.begin(), tensors.end(), [&](const at::Tensor& tensor) {
    return (tensor.scalar_type() == at::kFloat ||
            (tensor.scalar_type() == at::kBFloat16 && type.has_value())) &&
           tensor.layout() == at::kStrided && tensor.is_non_overlapping_and_dense();
  });
}

double SumOfSquares(const at::Tensor& tensor, int64_t first) {
  const int64_t count = std::min(kNormPart, tensor.numel() - first);
  return tensor.scalar_type() == at::kFloat
             ? SumOfSquares(tensor.const_data_ptr<float>() + first, count)
             : SumOfSquares(tensor.const_data_ptr<c10::BFloat16>() + first, count);
}

}  // namespace

std::vector<at::Tensor> Norms(at::TensorList tensors, const at::Scalar& order,
                              std::optional<at::ScalarType> type) {
  if (!Suits(tensors, order, type)) {
    return at::compositeexplicitautograd::_foreach_norm(tensors, order, type);
  }
  std::vector<Part> parts;
  for (size_t tensor = 0; tensor < tensors.size(); ++tensor) {
    for (int64_t first = 0; first < tensors[tensor].numel(); first += kNormPart) {
      parts.push_back({tensor, first});
    }
  }
  std::vector<double> sums(parts.size());
  ParallelLoop(static_cast<int64_t>(parts.size()), 1, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      sums[i] = SumOfSquares(tensors[parts[i].tensor], parts[i].first);
    }
  });
  std::vector<double> squares(tensors.size());
  for (size_t i = 0; i < parts.size(); ++i) squares[parts[i].tensor] += sums[i];
  std::vector<at::Tensor> norms;
  norms.reserve(tensors.size());
  for (const double square : squares) {
    norms.push_back(at::full({}, std::sqrt(square), tensors[0].options().dtype(at::kFloat)));
  }
  return norms;
}

}  // namespace genesis
