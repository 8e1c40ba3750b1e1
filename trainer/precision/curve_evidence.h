#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "trainer/precision/loss_curve.h"

namespace genesis {

// The finding of two curves when they are sure.
struct CurveFinding {
  double excess = 0;  // Geometric mean of loss / baseline, less 1.
  double chance = 0;  // Of as large a mean where the true one is what the test accepts.
  int64_t steps = 0;  // That it was seen over.
};

// Decides by the logarithms of loss / baseline, step by step, whether a run loses more than the one
// in FP32. Two runs that train alike part after some hundred steps, for rounding differs, and then
// differ by their noise; so a mean over 1, 2, 4, 8 or 16 windows is set against what such means are
// apart by themselves, and the more so the longer they last:
//
//   noise     of a mean over m windows: from how far neighbouring means of this run's own
//             differences are apart, at every scale up to m (batch means, so autocorrelation is in
//             them), without the largest 15 %, for a fault must not hide in its own noise; and not
//             below that of the baseline's windows around their neighbours, times the root of 2
//   accepted  half of the threshold over up to 2 windows, a quarter of it over more
//   first     five windows are only listened to. A baseline whose first window is not within some
//             percent is of another seed, and seeds lie further apart than formats: then three
//             times the threshold is accepted, and smaller drifts are left to the pairs
//   test      Student's t, at the rate divided by the looks that the baseline's length allows
//
// Owner: the watchdog. Threads: one.
class CurveEvidence {
 public:
  CurveEvidence(double threshold, int64_t window_steps, double false_alarm_rate);

  void SetBaseline(const Baseline& baseline);
  // `difference` is log(loss) - log(baseline) at the step.
  std::optional<CurveFinding> Add(int64_t step, double difference);
  void Reset();

 private:
  std::optional<CurveFinding> Judge(int64_t step) const;
  // Means of the newest windows, `scale` each, newest first.
  std::vector<double> Means(size_t scale) const;
  double BaselineNoise(int64_t step) const;

  const double threshold_;
  const int64_t window_steps_;
  const double false_alarm_rate_;
  std::vector<double> baseline_windows_;  // Mean logarithms of the first ones.
  // Variance of a window's mean that points of more steps than a window do not show.
  double hidden_variance_ = 0;
  double twin_ = 0;  // How far the first window of the same job may be from the baseline's.
  int64_t all_windows_ = 0;
  int64_t first_step_ = 0;
  std::vector<double> windows_;  // Mean differences.
  double sum_ = 0;
  int64_t count_ = 0;
  bool from_start_ = false;  // The first windows are the baseline's first.
  bool other_seed_ = false;
};

}  // namespace genesis
