#include "trainer/precision/loss_curve.h"

#include <algorithm>
#include <cmath>
#include <fstream>
#include <vector>

#include "absl/strings/str_cat.h"
#include "google/protobuf/struct.pb.h"
#include "google/protobuf/util/json_util.h"
#include "trainer/precision/median.h"

namespace genesis {
namespace {

constexpr int kMostPoints = 1024;
constexpr size_t kTimedSteps = 255;

absl::Status Fault(const std::string& path, int64_t line, const std::string& what) {
  return absl::InvalidArgumentError(
      absl::StrCat(path, ":", line, ": ", what,
                   "; accepted: one JSON object per line with step (a whole number that rises) and "
                   "loss (a number), as genesis-worker --telemetry writes them"));
}

}  // namespace

bool Baseline::Covers(int64_t step) const {
  return !empty() && step >= curve_.steps(0) && step <= *curve_.steps().rbegin();
}

double Baseline::At(int64_t step) const {
  const auto after = std::lower_bound(curve_.steps().begin(), curve_.steps().end(), step);
  const auto i = static_cast<int>(after - curve_.steps().begin());
  if (curve_.steps(i) == step) return curve_.losses(i);
  const double part = static_cast<double>(step - curve_.steps(i - 1)) /
                      static_cast<double>(curve_.steps(i) - curve_.steps(i - 1));
  return curve_.losses(i - 1) + part * (curve_.losses(i) - curve_.losses(i - 1));
}

absl::StatusOr<training::v1::LossCurve> ReadLossCurve(const std::string& path) {
  std::ifstream file(path);
  if (!file) return absl::NotFoundError(absl::StrCat(path, ": cannot be opened"));
  LossRecorder recorder;
  int64_t number = 0;
  int64_t last = 0;
  for (std::string line; std::getline(file, line);) {
    ++number;
    google::protobuf::Struct record;
    if (!google::protobuf::util::JsonStringToMessage(line, &record).ok()) {
      return Fault(path, number, "is no JSON object");
    }
    const auto& fields = record.fields();
    const auto step = fields.find("step");
    const auto loss = fields.find("loss");
    if (step == fields.end() || !step->second.has_number_value() || loss == fields.end()) {
      return Fault(path, number, "has no step and loss");
    }
    if (loss->second.has_null_value()) continue;
    const double value = step->second.number_value();
    if (!loss->second.has_number_value() || value != std::floor(value) ||
        value <= static_cast<double>(last) || value > 1e15) {
      return Fault(path, number, absl::StrCat("has step ", value, " after ", last));
    }
    last = static_cast<int64_t>(value);
    recorder.Add(last, loss->second.number_value(), /*seconds=*/0);
  }
  if (recorder.curve().steps().empty()) return Fault(path, number, "holds no losses");
  return recorder.curve();
}

training::v1::LossCurve LossRecorder::curve() const {
  training::v1::LossCurve curve = curve_;
  if (seconds_.empty()) return curve;
  curve.set_step_seconds(Median({seconds_.begin(), seconds_.end()}));
  return curve;
}

void LossRecorder::Add(int64_t step, double loss, double seconds) {
  seconds_.push_back(seconds);
  if (seconds_.size() > kTimedSteps) seconds_.pop_front();
  pending_sum_ += loss;
  if (++pending_ < steps_per_point_) return;
  // A point stands in the middle of its steps.
  curve_.add_steps(step - (pending_ - 1) / 2);
  curve_.add_losses(pending_sum_ / static_cast<double>(pending_));
  pending_ = 0;
  pending_sum_ = 0;
  if (curve_.steps_size() == kMostPoints) Halve();
}

void LossRecorder::Halve() {
  for (int i = 0; i < kMostPoints / 2; ++i) {
    curve_.set_steps(i, (curve_.steps(2 * i) + curve_.steps(2 * i + 1)) / 2);
    curve_.set_losses(i, (curve_.losses(2 * i) + curve_.losses(2 * i + 1)) / 2);
  }
  curve_.mutable_steps()->Truncate(kMostPoints / 2);
  curve_.mutable_losses()->Truncate(kMostPoints / 2);
  steps_per_point_ *= 2;
}

}  // namespace genesis
