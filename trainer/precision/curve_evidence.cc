#include "trainer/precision/curve_evidence.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "trainer/precision/student.h"

namespace genesis {
namespace {

constexpr size_t kScales[] = {1, 2, 4, 8, 16};
// Means over at most this many windows must exceed half of the threshold; longer ones, a quarter.
constexpr size_t kShort = 2;
// Maximum difference of the logarithms of the first windows of the same job in two formats.
constexpr double kTwin = 0.015;
// Number of thresholds by which runs of two seeds may differ.
constexpr double kOtherSeed = 3;
// Number of windows from which noise is estimated.
constexpr size_t kMemory = 64;
// Minimum number of differences of neighbouring means for an estimate at a scale.
constexpr size_t kNeighbours = 4;
// Factor of the variance, because neighbours are never fully independent.
constexpr double kDependence = 1.2;
constexpr double kTrimmed = 0.15;
// Standard deviation of a normal distribution / its estimate from the trimmed squares.
constexpr double kTrimCorrection = 1.4;
// Maximum number of baseline windows, and approximate number of steps sampled in each.
constexpr int64_t kMaxWindows = 20'000;
constexpr int64_t kSamples = 64;
// Number of baseline windows on either side of a step that determine its noise.
constexpr int64_t kAround = 8;
// Degrees of freedom of the baseline's noise, to which those of the run's own noise are added.
constexpr double kBaselineFreedom = 20;

// Returns the deviation estimated from differences of neighbours; 0 if there are too few.
double DeviationOfNeighbours(const std::vector<double>& values) {
  if (values.size() < kNeighbours + 1) return 0;
  std::vector<double> squares;
  for (size_t i = 0; i + 1 < values.size(); ++i) {
    squares.push_back((values[i + 1] - values[i]) * (values[i + 1] - values[i]) / 2);
  }
  std::sort(squares.begin(), squares.end());
  const auto trimmed =
      static_cast<size_t>(std::ceil(kTrimmed * static_cast<double>(squares.size())));
  squares.resize(squares.size() - trimmed);
  const double mean =
      std::accumulate(squares.begin(), squares.end(), 0.0) / static_cast<double>(squares.size());
  return kTrimCorrection * std::sqrt(mean);
}

}  // namespace

CurveEvidence::CurveEvidence(double threshold, int64_t window_steps, double false_alarm_rate)
    : threshold_(threshold), window_steps_(window_steps), false_alarm_rate_(false_alarm_rate) {}

void CurveEvidence::SetBaseline(const Baseline& baseline) {
  baseline_windows_.clear();
  hidden_variance_ = 0;
  all_windows_ = 0;
  if (baseline.empty()) return;
  const auto& steps = baseline.curve().steps();
  const auto& variances = baseline.curve().log_variances();
  const int64_t steps_per_point = steps.size() > 1 ? steps[1] - steps[0] : 1;
  if (steps_per_point > window_steps_ && !variances.empty()) {
    hidden_variance_ = kDependence * std::accumulate(variances.begin(), variances.end(), 0.0) /
                       static_cast<double>(variances.size() * window_steps_);
  }
  first_step_ = steps[0];
  // A point that averages several steps may extend beyond the window.
  const double ragged =
      variances.empty() ? 0 : std::sqrt(variances[0] * static_cast<double>(steps_per_point));
  twin_ = kTwin + 3 * ragged / static_cast<double>(window_steps_);
  all_windows_ = (*steps.rbegin() - first_step_ + 1) / window_steps_;
  const int64_t stride = std::max<int64_t>(window_steps_ / kSamples, 1);
  for (int64_t window = 0; window < std::min(all_windows_, kMaxWindows); ++window) {
    double sum = 0;
    int64_t count = 0;
    for (int64_t in = 0; in < window_steps_; in += stride, ++count) {
      sum += baseline.LogAt(first_step_ + window * window_steps_ + in);
    }
    baseline_windows_.push_back(sum / static_cast<double>(count));
  }
}

std::optional<CurveFinding> CurveEvidence::Add(int64_t step, double difference) {
  if (windows_.empty() && count_ == 0) from_start_ = step < first_step_ + window_steps_ / 2;
  sum_ += difference;
  if (++count_ < window_steps_) return std::nullopt;
  windows_.push_back(sum_ / static_cast<double>(count_));
  sum_ = 0;
  count_ = 0;
  if (windows_.size() == 1) other_seed_ = from_start_ && std::abs(windows_.front()) > twin_;
  if (windows_.size() > kMemory) windows_.erase(windows_.begin());
  return Judge(step);
}

std::vector<double> CurveEvidence::Means(size_t scale) const {
  std::vector<double> means;
  for (size_t end = windows_.size(); end >= scale; end -= scale) {
    const auto last = windows_.begin() + static_cast<std::ptrdiff_t>(end);
    means.push_back(std::accumulate(last - static_cast<std::ptrdiff_t>(scale), last, 0.0) /
                    static_cast<double>(scale));
  }
  return means;
}

double CurveEvidence::BaselineNoise(int64_t step) const {
  const auto size = static_cast<int64_t>(baseline_windows_.size());
  const int64_t at = std::min((step - first_step_) / window_steps_, size - 1);
  double sum = 0;
  int64_t count = 0;
  for (int64_t i = std::max<int64_t>(at - kAround, 1); i < std::min(at + kAround, size - 1); ++i) {
    const auto place = baseline_windows_.begin() + i;
    // Compare with the mean of both neighbours, so that a slope does not count as noise.
    const double bend = *(place - 1) - 2 * *place + *(place + 1);
    sum += bend * bend / 6;
    ++count;
  }
  return std::sqrt(hidden_variance_ + (count > 0 ? sum / static_cast<double>(count) : 0));
}

std::optional<CurveFinding> CurveEvidence::Judge(int64_t step) const {
  if (windows_.size() <= kNeighbours) return std::nullopt;
  const double looks = static_cast<double>(std::max<int64_t>(all_windows_, 1)) * std::size(kScales);
  const double baseline_noise = std::sqrt(2) * BaselineNoise(step);
  const double freedom = kBaselineFreedom + static_cast<double>(windows_.size()) / 2;
  // The noise of a single window: the maximum over the scales so far.
  double noise = baseline_noise;
  for (const size_t scale : kScales) {
    if (windows_.size() < scale) break;
    const auto windows = static_cast<double>(scale);
    const std::vector<double> means = Means(scale);
    noise = std::max(noise, DeviationOfNeighbours(means) * std::sqrt(windows));
    const double accepted = std::log1p(threshold_ * (other_seed_       ? kOtherSeed
                                                     : scale <= kShort ? 0.5
                                                                       : 0.25));
    const double error = std::max(noise * std::sqrt(scale > 1 ? kDependence / windows : 1), 1e-6);
    const double chance = StudentTail((means.front() - accepted) / error, freedom);
    if (chance >= false_alarm_rate_ / looks) continue;
    return CurveFinding{.excess = std::expm1(means.front()),
                        .chance = chance,
                        .steps = static_cast<int64_t>(scale) * window_steps_};
  }
  return std::nullopt;
}

void CurveEvidence::Reset() {
  windows_.clear();
  from_start_ = other_seed_ = false;
  sum_ = 0;
  count_ = 0;
}

}  // namespace genesis
