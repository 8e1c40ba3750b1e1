#pragma once

#include <cstdint>
#include <deque>
#include <optional>
#include <vector>

namespace genesis {

// The losses of one batch with the same weights, in the format of the steps and in FP32.
struct PairedLoss {
  double reduced = 0;
  double fp32 = 0;
  // Largest relative error of the format: 2^-8 for BF16, 2^-11 for FP16.
  double rounding_error = 0;
};

// The finding of a significant difference in the pairs.
struct PairFinding {
  double excess = 0;  // (reduced - fp32) / fp32, the geometric mean.
  double chance = 0;  // Probability of such a mean if the true excess is the accepted one.
  int pairs = 0;
  bool lasting = false;  // A smaller excess that persisted.
};

// A test of whether the loss in reduced precision is higher than in FP32, from pairs of losses.
// Both losses of a pair use the same weights and the same batch. Unlike two curves of the same job,
// they differ neither by chaotic divergence nor by the noise of the data.
//
// A format of b mantissa bits has a relative rounding error of about 2^-b. Rounding adds a harmless
// term to a squared loss that stays constant while the loss falls: 1e-4 of the first loss in BF16,
// and more than a tenth of the loss once it has fallen to a thousandth. The term is estimated from
// pairs without an excess, as the mean of reduced - fp32 weighted by 1 / fp32^2, up to a bound that
// depends on the format. Ratios are reduced / (fp32 + rounding).
//
// The first few pairs are measured in quick succession, then one every two windows. A pair that is
// half the threshold above FP32, or several that are a quarter of it above, start a burst of one
// pair per step. A t-test over the burst checks whether the excess is above half the threshold,
// which is a finding. A test over four to eight bursts, a window apart, checks for an excess above
// a quarter of it, which is a lasting finding. The k-th burst may err with a fraction 6 / (pi k)^2
// of the false alarm rate, so the total stays within the rate for a run of any length.
//
// Owner: the watchdog. Threads: one.
class PairEvidence {
 public:
  PairEvidence(double threshold, int64_t window_steps, double false_alarm_rate);

  // Sets the initial loss in FP32, if it is known.
  void SetFirstLoss(double loss) { known_first_loss_ = loss; }
  // Returns whether to measure a pair at this step. `excess` is the relative excess of the loss
  // over FP32's in the window, if known. A suspicious excess is checked sooner.
  bool Wants(int64_t step, double excess) const;
  std::optional<PairFinding> Add(int64_t step, const PairedLoss& pair);
  // Returns whether a burst is in progress or the last one found an excess not yet refuted.
  bool suspicious() const { return bursting_ || !lasting_.empty() || found_; }
  // The part of the loss caused by rounding.
  double rounding() const { return rounding_; }
  void Reset();

 private:
  struct Mean {
    double value = 0;
    double error = 0;  // Standard deviation of the value.
    double freedom = 0;
  };
  static Mean MeanOf(const std::vector<double>& ratios);

  // One observation of the rounding error.
  struct Difference {
    double of_losses = 0;  // reduced - fp32
    double weight = 0;     // Number of pairs / fp32^2.
  };
  // Returns the number of steps between the first pairs.
  int64_t ShortPause() const;
  void LearnRounding(const PairedLoss& mean, double pairs);
  std::optional<PairFinding> Judge(int64_t step, double rounding_error);

  const double threshold_;
  const int64_t window_steps_;
  const double false_alarm_rate_;
  double known_first_loss_ = 0;
  double first_loss_ = 0;  // First FP32 loss of the pairs, or the known one if larger.
  std::deque<Difference> differences_;
  double rounding_ = 0;
  PairedLoss sum_;  // Sum over the burst.
  bool bursting_ = false;
  bool found_ = false;
  double level_ = 0;             // Moving average of the single pairs' logarithms.
  std::vector<double> burst_;    // Logarithms of the ratios.
  std::vector<double> lasting_;  // Ratios of the last bursts that were not refuted.
  int64_t next_step_ = 0;        // Step of the next pair.
  int64_t first_step_ = 0;
  int64_t last_step_ = 0;
  int64_t bursts_ = 0;
};

}  // namespace genesis
