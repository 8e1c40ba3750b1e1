#include "trainer/optim/schedule.h"

#include <algorithm>
#include <cmath>
#include <iterator>
#include <numbers>

namespace genesis {
namespace {

using Points = google::protobuf::RepeatedPtrField<training::v1::SchedulePoint>;

// Interpolates as numpy.interp does. Requires at least one point and ascending steps.
double Interpolate(const Points& points, int64_t step) {
  const auto above =
      std::upper_bound(points.begin(), points.end(), step,
                       [](int64_t s, const auto& point) { return s < point.step(); });
  if (above == points.begin()) return points.begin()->factor();
  const auto& left = *std::prev(above);
  if (above == points.end()) return left.factor();
  const double slope =
      (above->factor() - left.factor()) / static_cast<double>(above->step() - left.step());
  return slope * static_cast<double>(step - left.step()) + left.factor();
}

}  // namespace

Schedule::Schedule(const training::v1::OptimizerSpec& spec, int64_t total_steps)
    : spec_(spec.schedule()), learning_rate_(spec.learning_rate()), total_steps_(total_steps) {}

double Schedule::LearningRate(int64_t applied, int64_t reductions) const {
  return learning_rate_ * Factor(applied, reductions);
}

bool Schedule::constant() const {
  return spec_.warmup_steps() <= 1 && (spec_.kind() == training::v1::SCHEDULE_KIND_CONSTANT ||
                                       spec_.kind() == training::v1::SCHEDULE_KIND_UNSPECIFIED);
}

double Schedule::Factor(int64_t applied, int64_t reductions) const {
  if (spec_.kind() == training::v1::SCHEDULE_KIND_TABLE) {
    return Interpolate(spec_.points(), applied);
  }
  const int64_t warmup = spec_.warmup_steps();
  if (applied < warmup) return static_cast<double>(applied + 1) / static_cast<double>(warmup);
  if (spec_.kind() == training::v1::SCHEDULE_KIND_PLATEAU) {
    return std::max(std::pow(spec_.plateau_factor(), static_cast<double>(reductions)),
                    spec_.final_fraction());
  }
  const auto length = static_cast<double>(std::max<int64_t>(total_steps_ - 1 - warmup, 1));
  const double x = std::min(static_cast<double>(applied - warmup) / length, 1.0);
  double shape = 1;
  if (spec_.kind() == training::v1::SCHEDULE_KIND_LINEAR) shape = 1 - x;
  if (spec_.kind() == training::v1::SCHEDULE_KIND_COSINE) {
    shape = (1 + std::cos(std::numbers::pi * x)) / 2;
  }
  return spec_.final_fraction() + (1 - spec_.final_fraction()) * shape;
}

}  // namespace genesis
