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

constexpr int kMaxPoints = 1024;
constexpr size_t kTimedSteps = 255;
constexpr double kLeastLoss = 1e-30;

absl::Status Fault(const std::string& path, int64_t line, const std::string& what) {
  return absl::InvalidArgumentError(
      absl::StrCat(path, ":", line, ": ", what,
                   "; accepted: one JSON object per line with step (a whole number that rises) and "
                   "loss (a number), as genesis-worker --telemetry writes them"));
}

}  // namespace

double LogLoss(double loss) { return std::log(std::max(loss, kLeastLoss)); }

bool Baseline::Covers(int64_t step) const {
  return !empty() && step >= curve_.steps(0) && step <= *curve_.steps().rbegin();
}

Baseline::Place Baseline::Find(int64_t step) const {
  const auto after = std::lower_bound(curve_.steps().begin(), curve_.steps().end(), step);
  const auto i = static_cast<int>(after - curve_.steps().begin());
  if (curve_.steps(i) == step) return {.before = i, .after = i};
  return {.before = i - 1,
          .after = i,
          .part = static_cast<double>(step - curve_.steps(i - 1)) /
                  static_cast<double>(curve_.steps(i) - curve_.steps(i - 1))};
}

double Baseline::At(int64_t step) const {
  const Place place = Find(step);
  const double before = curve_.losses(place.before);
  return before + place.part * (curve_.losses(place.after) - before);
}

double Baseline::LogAt(int64_t step) const {
  const bool has_logs = curve_.log_losses_size() == curve_.losses_size();
  const auto log = [&](int i) {
    return has_logs ? curve_.log_losses(i) : LogLoss(curve_.losses(i));
  };
  const Place place = Find(step);
  const double before = log(place.before);
  return before + place.part * (log(place.after) - before);
}

std::optional<double> Baseline::HeldOutAt(int64_t step) const {
  const auto& steps = curve_.held_out_steps();
  if (steps.size() != curve_.held_out_losses_size()) return std::nullopt;
  const auto after = std::lower_bound(steps.begin(), steps.end(), step);
  if (after == steps.end()) return std::nullopt;
  const auto i = static_cast<int>(after - steps.begin());
  if (*after == step) return curve_.held_out_losses(i);
  if (i == 0) return std::nullopt;
  const double part =
      static_cast<double>(step - steps[i - 1]) / static_cast<double>(*after - steps[i - 1]);
  return std::exp((1 - part) * LogLoss(curve_.held_out_losses(i - 1)) +
                  part * LogLoss(curve_.held_out_losses(i)));
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
      return Fault(path, number, "is not a JSON object");
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
  curve.set_step_processor_seconds(Median({processor_seconds_.begin(), processor_seconds_.end()}));
  return curve;
}

void LossRecorder::Add(int64_t step, double loss, double seconds, double processor_seconds) {
  seconds_.push_back(seconds);
  processor_seconds_.push_back(processor_seconds);
  if (seconds_.size() > kTimedSteps) {
    seconds_.pop_front();
    processor_seconds_.pop_front();
  }
  const double log = LogLoss(loss);
  pending_sum_ += loss;
  pending_log_sum_ += log;
  pending_log_squares_ += log * log;
  if (++pending_ < steps_per_point_) return;
  // A point represents the middle of its steps.
  const auto count = static_cast<double>(pending_);
  const double mean_log = pending_log_sum_ / count;
  curve_.add_steps(step - (pending_ - 1) / 2);
  curve_.add_losses(pending_sum_ / count);
  curve_.add_log_losses(mean_log);
  curve_.add_log_variances(
      pending_ > 1 ? std::max(pending_log_squares_ / count - mean_log * mean_log, 0.0) : 0);
  pending_ = 0;
  pending_sum_ = pending_log_sum_ = pending_log_squares_ = 0;
  if (curve_.steps_size() == kMaxPoints) Halve();
}

void LossRecorder::AddHeldOut(int64_t step, double loss) {
  auto& steps = *curve_.mutable_held_out_steps();
  auto& losses = *curve_.mutable_held_out_losses();
  steps.Add(step);
  losses.Add(loss);
  if (steps.size() < kMaxPoints) return;
  // Keep every second point, including the newest.
  for (int i = 0; i < kMaxPoints / 2; ++i) {
    steps[i] = steps[2 * i + 1];
    losses[i] = losses[2 * i + 1];
  }
  steps.Truncate(kMaxPoints / 2);
  losses.Truncate(kMaxPoints / 2);
}

void LossRecorder::Halve() {
  for (int i = 0; i < kMaxPoints / 2; ++i) {
    curve_.set_steps(i, (curve_.steps(2 * i) + curve_.steps(2 * i + 1)) / 2);
    curve_.set_losses(i, (curve_.losses(2 * i) + curve_.losses(2 * i + 1)) / 2);
    const double apart = curve_.log_losses(2 * i + 1) - curve_.log_losses(2 * i);
    curve_.set_log_losses(i, curve_.log_losses(2 * i) + apart / 2);
    curve_.set_log_variances(
        i, (curve_.log_variances(2 * i) + curve_.log_variances(2 * i + 1)) / 2 + apart * apart / 4);
  }
  curve_.mutable_steps()->Truncate(kMaxPoints / 2);
  curve_.mutable_losses()->Truncate(kMaxPoints / 2);
  curve_.mutable_log_losses()->Truncate(kMaxPoints / 2);
  curve_.mutable_log_variances()->Truncate(kMaxPoints / 2);
  steps_per_point_ *= 2;
}

}  // namespace genesis
