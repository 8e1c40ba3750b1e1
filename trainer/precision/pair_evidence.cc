#include "trainer/precision/pair_evidence.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "trainer/precision/loss_curve.h"
#include "trainer/precision/student.h"

namespace genesis {
namespace {

constexpr size_t kPairs = 16;
constexpr size_t kLastingPairs = 4 * kPairs;
constexpr int64_t kWindowsBetween = 2;
// A small spread of ratios does not prove that there is no noise.
constexpr double kLeastDeviation = 0.004;
constexpr double kPiSquared = 9.869604401089358;
// Number of newest differences from which rounding is estimated.
constexpr size_t kDifferences = 21;
// Number of first pairs, which always contribute to the estimate and are spread over a window.
constexpr size_t kFirstPairs = 5;
// Above this many thresholds, the excess of a window is not noise.
constexpr double kGross = 3;
// Upper bound of the rounding term, in squared rounding errors of the format times the first loss.
constexpr double kMaxRoundings = 6;
// Upper bound of the rounding term / loss, if a resumed run does not know its first loss.
constexpr double kMaxUnknown = 0.25;

}  // namespace

PairEvidence::PairEvidence(double threshold, int64_t window_steps, double false_alarm_rate)
    : threshold_(threshold), window_steps_(window_steps), false_alarm_rate_(false_alarm_rate) {}

bool PairEvidence::Wants(int64_t step, double excess) const {
  if (bursting_ || step >= next_step_) return true;
  if (excess > kGross * threshold_) return step >= last_step_ + ShortPause();
  return excess > threshold_ / 2 && step >= last_step_ + window_steps_;
}

int64_t PairEvidence::ShortPause() const {
  return std::max<int64_t>(window_steps_ / static_cast<int64_t>(kFirstPairs), 1);
}

std::optional<PairFinding> PairEvidence::Add(int64_t step, const PairedLoss& pair) {
  if (last_step_ == 0) first_step_ = step;
  last_step_ = step;
  next_step_ = step + kWindowsBetween * window_steps_;
  if (!std::isfinite(pair.reduced) || !std::isfinite(pair.fp32) || pair.fp32 <= 0) {
    burst_.clear();
    bursting_ = false;
    return std::nullopt;
  }
  const double ratio = LogLoss(pair.reduced) - LogLoss(pair.fp32 + rounding_);
  if (bursting_) {
    burst_.push_back(ratio);
    sum_.reduced += pair.reduced;
    sum_.fp32 += pair.fp32;
    return burst_.size() < kPairs ? std::nullopt : Judge(step, pair.rounding_error);
  }
  if (differences_.size() < kFirstPairs) {
    LearnRounding(pair, 1);
    next_step_ = step + ShortPause();
    return std::nullopt;
  }
  level_ += (ratio - level_) / 2;
  found_ = found_ && ratio > std::log1p(threshold_ / 4);
  bursting_ = ratio > std::log1p(threshold_ / 2) || level_ > std::log1p(threshold_ / 4) ||
              !lasting_.empty();
  // A suspected change must not shift the estimate.
  if (!bursting_ && ratio <= std::log1p(threshold_ / 4)) LearnRounding(pair, 1);
  sum_ = {};
  return std::nullopt;
}

void PairEvidence::LearnRounding(const PairedLoss& mean, double pairs) {
  if (first_loss_ == 0) first_loss_ = std::max(mean.fp32, known_first_loss_);
  differences_.push_back(
      {.of_losses = mean.reduced - mean.fp32, .weight = pairs / (mean.fp32 * mean.fp32)});
  if (differences_.size() > kDifferences) differences_.pop_front();
  double sum = 0;
  double weights = 0;
  for (const Difference& difference : differences_) {
    sum += difference.weight * difference.of_losses;
    weights += difference.weight;
  }
  const bool unknown = known_first_loss_ == 0 && first_step_ > 2 * window_steps_;
  const double bound =
      unknown ? kMaxUnknown * mean.fp32
              : kMaxRoundings * mean.rounding_error * mean.rounding_error * first_loss_;
  rounding_ = std::clamp(sum / weights, 0.0, bound);
}

PairEvidence::Mean PairEvidence::MeanOf(const std::vector<double>& ratios) {
  const auto count = static_cast<double>(ratios.size());
  const double mean = std::accumulate(ratios.begin(), ratios.end(), 0.0) / count;
  double squares = 0;
  for (const double ratio : ratios) squares += (ratio - mean) * (ratio - mean);
  const double deviation = std::max(std::sqrt(squares / (count - 1)), kLeastDeviation);
  return {.value = mean, .error = deviation / std::sqrt(count), .freedom = count - 1};
}

std::optional<PairFinding> PairEvidence::Judge(int64_t step, double rounding_error) {
  const Mean burst = MeanOf(burst_);
  lasting_.insert(lasting_.end(), burst_.begin(), burst_.end());
  burst_.clear();
  bursting_ = false;
  ++bursts_;
  const auto tried = static_cast<double>(bursts_);
  // Each of the two tests gets half of the rate.
  const double rate = false_alarm_rate_ / 2 * 6 / kPiSquared / tried / tried;
  const auto chance = [](const Mean& mean, double accepted) {
    return StudentTail((mean.value - std::log1p(accepted)) / mean.error, mean.freedom);
  };
  const double large = chance(burst, threshold_ / 2);
  if (large < rate) {
    lasting_.clear();
    found_ = true;
    return PairFinding{
        .excess = std::expm1(burst.value), .chance = large, .pairs = static_cast<int>(kPairs)};
  }
  const Mean all = MeanOf(lasting_);
  const double small = chance(all, threshold_ / 4);
  if (lasting_.size() >= kLastingPairs && small < rate) {
    const PairFinding finding{.excess = std::expm1(all.value),
                              .chance = small,
                              .pairs = static_cast<int>(lasting_.size()),
                              .lasting = true};
    lasting_.clear();
    found_ = true;
    return finding;
  }
  // Test another burst soon only while an excess is still possible.
  const bool hopeless = burst.value < std::log1p(threshold_ / 4);
  if (hopeless) {
    const auto count = static_cast<double>(kPairs);
    LearnRounding({.reduced = sum_.reduced / count,
                   .fp32 = sum_.fp32 / count,
                   .rounding_error = rounding_error},
                  count);
  }
  if (hopeless || lasting_.size() >= 2 * kLastingPairs) {
    lasting_.clear();
    return std::nullopt;
  }
  next_step_ = step + window_steps_;
  return std::nullopt;
}

void PairEvidence::Reset() {
  // Another format has other rounding errors.
  differences_.clear();
  rounding_ = 0;
  burst_.clear();
  lasting_.clear();
  bursting_ = found_ = false;
  level_ = 0;
  next_step_ = last_step_ = 0;
}

}  // namespace genesis
