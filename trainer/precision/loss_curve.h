#pragma once

#include <cstdint>
#include <deque>
#include <optional>
#include <string>

#include "absl/status/statusor.h"
#include "genesis/training/v1/precision.pb.h"

namespace genesis {

// Returns the natural logarithm of a loss. A loss that is not above zero is replaced by a tiny
// positive number.
double LogLoss(double loss);

// The losses of an FP32 run, for comparison. Threads: immutable.
class Baseline {
 public:
  // An empty baseline: empty() returns true.
  Baseline() = default;
  explicit Baseline(training::v1::LossCurve curve) : curve_(std::move(curve)) {}

  bool empty() const { return curve_.steps().empty(); }
  // Returns whether the curve reaches this step.
  bool Covers(int64_t step) const;
  // Returns the loss at a step, interpolated linearly between the nearest points. Requires
  // Covers(step).
  double At(int64_t step) const;
  // Returns the mean logarithm of the loss, interpolated as At does. If the curve has no
  // logarithms, uses those of its losses. Requires Covers(step).
  double LogAt(int64_t step) const;
  // Returns the held-out loss at a step, interpolated by its logarithm between the nearest two
  // measurements; nullopt outside of them.
  std::optional<double> HeldOutAt(int64_t step) const;
  // Median time of a step in seconds; 0 if unknown.
  double step_seconds() const { return curve_.step_seconds(); }
  const training::v1::LossCurve& curve() const { return curve_; }

 private:
  // Indices of the points before (or at) and after a step, and the fraction between them.
  struct Place {
    int before = 0;
    int after = 0;
    double part = 0;
  };
  Place Find(int64_t step) const;

  training::v1::LossCurve curve_;
};

// Reads lines of JSON with "step" and "loss", as genesis-worker --telemetry writes them. Skips
// lines whose loss is null. INVALID_ARGUMENT with the line and the error; NOT_FOUND.
absl::StatusOr<training::v1::LossCurve> ReadLossCurve(const std::string& path);

// A recorder of a curve of at most 1024 points. Each point is the mean of equally many steps; that
// number doubles when the curve is full.
//
// Owner: the run. Threads: one.
class LossRecorder {
 public:
  // `seconds` is the duration of the step and `processor_seconds` its processor time; 0 if unknown.
  void Add(int64_t step, double loss, double seconds, double processor_seconds = 0);
  void AddHeldOut(int64_t step, double loss);
  // Returns the curve with the median times of the newest steps.
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
