#include <algorithm>
#include <cmath>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "trainer/data/portable_math.h"
#include "trainer/data/splitmix.h"
#include "trainer/data/synthetic.h"

namespace genesis {
namespace {

constexpr int64_t kMaxState = 32;
// Absolute sum of each row of A: keeps the state bounded for any actions.
constexpr double kContraction = 0.9;

// Returns rows x columns in [-1, 1), with each row divided so that its absolute values sum to
// `sum`.
std::vector<double> RandomMatrix(SplitMix64& random, int64_t rows, int64_t columns, double sum) {
  std::vector<double> matrix(static_cast<size_t>(rows * columns));
  for (double& value : matrix) value = random.Signed();
  for (int64_t row = 0; row < rows; ++row) {
    double* const first = matrix.data() + row * columns;
    double size = 0;
    for (int64_t i = 0; i < columns; ++i) size += std::fabs(first[i]);
    for (int64_t i = 0; i < columns; ++i) first[i] *= sum / size;
  }
  return matrix;
}

void AddProduct(const std::vector<double>& matrix, const std::vector<double>& vector,
                std::vector<double>& result) {
  const size_t columns = vector.size();
  for (size_t row = 0; row < result.size(); ++row) {
    for (size_t i = 0; i < columns; ++i) result[row] += matrix[row * columns + i] * vector[i];
  }
}

class SyntheticTransitions final : public TransitionRows {
 public:
  SyntheticTransitions(const training::v1::SyntheticTrajectories& spec, uint64_t seed)
      : TransitionRows("dataset.synthetic"),
        seed_(seed),
        length_(spec.episode_length()),
        state_size_(static_cast<size_t>(std::min<int64_t>(kMaxState, spec.observation_size()))) {
    observation_size_ = spec.observation_size();
    action_size_ = spec.action_size();
    starts_.reserve(static_cast<size_t>(spec.episodes()) + 1);
    for (int64_t i = 1; i <= spec.episodes(); ++i) starts_.push_back(i * length_);
    const auto states = static_cast<int64_t>(state_size_);
    SplitMix64 random(seed, 0);
    dynamics_ = RandomMatrix(random, states, states, kContraction);
    control_ = RandomMatrix(random, states, action_size_, 0.5);
    sensors_ = RandomMatrix(random, observation_size_, states, 2.0);
  }

  absl::Status Read(int64_t first, int64_t count, float* out) const override {
    while (count > 0) {
      const int64_t episode = first / length_;
      const int64_t begin = first % length_;
      const int64_t steps = std::min(count, length_ - begin);
      out = Episode(episode, begin, begin + steps, out);
      first += steps;
      count -= steps;
    }
    return absl::OkStatus();
  }

  std::string ValueText(TransitionPart, int64_t row, int64_t column) const override {
    return absl::StrCat("column ", column, " of transition ", row, " is not finite");
  }

 private:
  // Writes steps [begin, end) of an episode, which is computed from its beginning.
  float* Episode(int64_t episode, int64_t begin, int64_t end, float* out) const {
    SplitMix64 random(seed_, static_cast<uint64_t>(episode) + 1);
    std::vector<double> state(state_size_), next(state_size_);
    std::vector<double> action(static_cast<size_t>(action_size_));
    for (double& value : state) value = random.Signed();
    for (int64_t step = 0; step < end; ++step) {
      for (double& value : action) value = random.Signed();
      std::fill(next.begin(), next.end(), 0.0);
      AddProduct(dynamics_, state, next);
      AddProduct(control_, action, next);
      if (step >= begin) {
        out = Observe(state, out);
        for (const double value : action) *out++ = static_cast<float>(value);
        out = Observe(next, out);
        double squares = 0;
        for (const double value : next) squares += value * value;
        *out++ = static_cast<float>(1 - squares / static_cast<double>(state_size_));
        *out++ = 0.0f;
      }
      state.swap(next);
    }
    return out;
  }

  float* Observe(const std::vector<double>& state, float* out) const {
    std::vector<double> seen(static_cast<size_t>(observation_size_));
    AddProduct(sensors_, state, seen);
    for (const double value : seen) *out++ = static_cast<float>(PortableTanh(value));
    return out;
  }

  const uint64_t seed_;
  const int64_t length_;
  const size_t state_size_;
  std::vector<double> dynamics_, control_, sensors_;
};

}  // namespace

std::unique_ptr<TransitionRows> MakeTransitions(const training::v1::SyntheticTrajectories& spec,
                                                uint64_t seed) {
  return std::make_unique<SyntheticTransitions>(spec, seed);
}

}  // namespace genesis
