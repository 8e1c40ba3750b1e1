#pragma once

#include <cstdint>
#include <deque>
#include <string>

#include "absl/status/statusor.h"
#include "genesis/training/v1/precision.pb.h"

namespace genesis {

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
  // Median time of a step; 0 when not known. Seconds.
  double step_seconds() const { return curve_.step_seconds(); }

 private:
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
  // `seconds`: how long the step took, 0 when not known.
  void Add(int64_t step, double loss, double seconds);
  // With the median time of the newest steps.
  training::v1::LossCurve curve() const;

 private:
  void Halve();

  training::v1::LossCurve curve_;
  std::deque<double> seconds_;
  int64_t steps_per_point_ = 1;
  int64_t pending_ = 0;
  double pending_sum_ = 0;
};

}  // namespace genesis
