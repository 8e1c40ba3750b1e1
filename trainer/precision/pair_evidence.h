#pragma once

#include <cstdint>
#include <deque>
#include <optional>
#include <vector>

namespace genesis {

// The loss of one batch with the same weights, in the format of the steps and in FP32.
struct PairedLoss {
  double reduced = 0;
  double fp32 = 0;
  double rounding_error = 0;  // The format's largest, relative: 2^-8 for BF16, 2^-11 for FP16.
};

// The finding of the pairs when they are sure.
struct PairFinding {
  double excess = 0;  // (reduced - fp32) / fp32, the geometric mean.
  double chance = 0;  // Of as large a mean where the true one is what the test accepts.
  int pairs = 0;
  bool lasting = false;  // A smaller excess that stayed.
};

// Decides by paired losses whether reduced precision loses more than FP32. Both formats see the
// same weights and the same batch, so neither chaos nor the data's noise is between them, as it is
// between two curves of the same job.
//
// A format of b bits of mantissa rounds with an error of about 2^-b of what it rounds, which adds a
// number to a squared loss that stays the same while the loss falls: 1e-4 of the first loss in
// BF16, and more than a tenth of the loss once that has fallen to a thousandth. It harms nothing,
// and is learnt from the pairs that were not high, as the mean of reduced - fp32 weighted by
// 1 / fp32^2, up to a bound that the format sets; ratios are of reduced / (fp32 + rounding).
//
// The first few pairs follow each other closely; then one is asked for every two windows. One that
// is half the threshold above FP32, or several that are a quarter of it, begin a burst, a pair at
// each step; over it a t-test asks whether the excess is above half the threshold, which is a
// finding, or above a quarter of it over the last four bursts, a window apart, which is a lasting
// one. The k-th burst may err with a part 6 / (pi k)^2 of the rate, which makes the rate in all
// however long the run is.
//
// Owner: the watchdog. Threads: one.
class PairEvidence {
 public:
  PairEvidence(double threshold, int64_t window_steps, double false_alarm_rate);

  // The loss of FP32 at the beginning, where that is known.
  void SetFirstLoss(double loss) { known_first_loss_ = loss; }
  // Whether a pair is wanted at this step. `excess` is what the loss is above FP32's over the
  // window, relative, where that is known: one that is suspicious is looked into sooner.
  bool Wants(int64_t step, double excess) const;
  std::optional<PairFinding> Add(int64_t step, const PairedLoss& pair);
  // A burst is under way, or the one before found an excess that no pair has denied since.
  bool suspicious() const { return bursting_ || !lasting_.empty() || found_; }
  // The part of the loss that rounding adds.
  double rounding() const { return rounding_; }
  void Reset();

 private:
  struct Mean {
    double value = 0;
    double error = 0;  // Standard deviation of the value.
    double freedom = 0;
  };
  static Mean MeanOf(const std::vector<double>& ratios);

  // The pairs' evidence of rounding.
  struct Difference {
    double of_losses = 0;  // reduced - fp32
    double weight = 0;     // Their number / fp32^2.
  };
  // Between the first pairs.
  int64_t ShortPause() const;
  void LearnRounding(const PairedLoss& mean, double pairs);
  std::optional<PairFinding> Judge(int64_t step, double rounding_error);

  const double threshold_;
  const int64_t window_steps_;
  const double false_alarm_rate_;
  double known_first_loss_ = 0;
  double first_loss_ = 0;  // Of the pairs, or what was known.
  std::deque<Difference> differences_;
  double rounding_ = 0;
  PairedLoss sum_;  // Of the burst.
  bool bursting_ = false;
  bool found_ = false;
  double level_ = 0;             // Of the single pairs' logarithms, the newest counting most.
  std::vector<double> burst_;    // Logarithms of the ratios.
  std::vector<double> lasting_;  // Those of the bursts in a row that found the smaller excess.
  int64_t next_step_ = 0;        // Of the next pair.
  int64_t first_step_ = 0;
  int64_t last_step_ = 0;
  int64_t bursts_ = 0;
};

}  // namespace genesis
