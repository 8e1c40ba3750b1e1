#pragma once

#include <cstdint>
#include <deque>
#include <optional>
#include <string>

#include "absl/status/statusor.h"
#include "genesis/training/v1/precision.pb.h"

namespace genesis {

// Natural logarithm of a loss; of one that is not above zero that of a number next to it.
double LogLoss(double loss);

// Losses of a run in FP32 to compare with. Threads: immutable.
class Baseline {
 public:
  // None: empty() is true.
  Baseline() = default;
  explicit Baseline(training::v1::LossCurve curve) : curve_(std::move(curve)) {}

  bool empty() const { return curve_.steps().empty(); }
  // The curve reaches this step.
  bool Covers(int64_t step) const;
  // The loss at a step, on a straight line between the two nearest points. Requires Covers(step).
  double At(int64_t step) const;
  // Mean logarithm of the loss there, between points as At; of a curve without logarithms that of
  // its losses. Requires Covers(step).
  double LogAt(int64_t step) const;
  // The held-out loss at a step, between the nearest two measurements; nullopt outside of them.
  std::optional<double> HeldOutAt(int64_t step) const;
  // Median time of a step; 0 when not known. Seconds.
  double step_seconds() const { return curve_.step_seconds(); }
  const training::v1::LossCurve& curve() const { return curve_; }

 private:
  // The points at or before a step and after it, and how far between them it lies.
  struct Place {
    int before = 0;
    int after = 0;
    double part = 0;
  };
  Place Find(int64_t step) const;

  training::v1::LossCurve curve_;
};

// Reads lines of JSON with "step" and "loss", as genesis-worker --telemetry writes them. Lines
// whose loss is null are passed over. INVALID_ARGUMENT names line and fault; NOT_FOUND.
absl::StatusOr<training::v1::LossCurve> ReadLossCurve(const std::string& path);

// Records a curve of at most 1024 points: the mean of each run of equally many steps, which doubles
// when there is no room.
//
// Owner: the run. Threads: one.
class LossRecorder {
 public:
  // How long the step took, and how long processors worked at it; 0 when not known.
  void Add(int64_t step, double loss, double seconds, double processor_seconds = 0);
  void AddHeldOut(int64_t step, double loss);
  // With the median times of the newest steps.
  training::v1::LossCurve curve() const;

 private:
  void Halve();

  training::v1::LossCurve curve_;
  std::deque<double> seconds_;
  std::deque<double> processor_seconds_;
  int64_t steps_per_point_ = 1;
  int64_t pending_ = 0;
  double pending_sum_ = 0;
  double pending_log_sum_ = 0;
  double pending_log_squares_ = 0;
};

}  // namespace genesis
