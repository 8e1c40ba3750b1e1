#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "trainer/precision/loss_curve.h"

namespace genesis {

// The finding of a significant difference between two curves.
struct CurveFinding {
  double excess = 0;  // Geometric mean of loss / baseline, minus 1.
  double chance = 0;  // Probability of such a mean if the true excess is the accepted one.
  int64_t steps = 0;  // Number of steps over which the excess was observed.
};

// A test of whether the loss of a run is higher than in FP32, from the logarithm of loss / baseline
// at each step. Because rounding differs, two equivalent runs diverge after some hundred steps and
// then differ by noise. A mean over 1, 2, 4, 8 or 16 windows is therefore compared with the usual
// difference of such means, more strictly for longer ones:
//
//   noise     deviation of a mean over m windows, from the differences of neighbouring means of
//             this run at every scale up to m (batch means, so autocorrelation is included). The
//             largest 15 % are trimmed so that a fault cannot hide in its own noise. At least the
//             deviation of the baseline's windows from their neighbours, times the root of 2
//   accepted  half of the threshold over up to 2 windows, a quarter of it over more
//   first     the first four windows are only observed. If the first window differs from the
//             baseline by some percent, the seeds differ, which changes more than a format does:
//             then three times the threshold is accepted; PairEvidence finds smaller drifts
//   test      Student's t, at the rate divided by the number of tests in the baseline's length
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
  // Returns the means of groups of `scale` windows, newest first.
  std::vector<double> Means(size_t scale) const;
  double BaselineNoise(int64_t step) const;

  const double threshold_;
  const int64_t window_steps_;
  const double false_alarm_rate_;
  std::vector<double> baseline_windows_;  // Mean logarithms of the baseline's windows.
  // Variance of a window's mean that is invisible if points average more steps than a window.
  double hidden_variance_ = 0;
  double twin_ = 0;  // A larger first difference means another seed.
  int64_t all_windows_ = 0;
  int64_t first_step_ = 0;
  std::vector<double> windows_;  // Mean difference of each window.
  double sum_ = 0;
  int64_t count_ = 0;
  bool from_start_ = false;  // Whether the run began near the baseline's first step.
  bool other_seed_ = false;
};

}  // namespace genesis
