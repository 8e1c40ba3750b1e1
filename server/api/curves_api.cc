// The metrics of every step of a job.
#include <algorithm>
#include <limits>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/text/field_error.h"
#include "config/precision/precision.h"
#include "curves/curve_folder.h"
#include "server/api/training_api.h"

namespace genesis {
namespace {

using training::v1::GetCurvesRequest;
using training::v1::GetCurvesResponse;

constexpr int kDefaultPoints = 1000;
constexpr int kMaxPoints = 10000;
constexpr int kMaxModes = 16;

// Returns the indexes of the requested metrics; INVALID_ARGUMENT lists the faults of all fields.
absl::StatusOr<std::vector<size_t>> MetricsOf(const GetCurvesRequest& request) {
  std::vector<FieldError> faults;
  std::vector<size_t> metrics;
  for (const std::string& name : request.metrics()) {
    const auto* const found = std::find(kCurveNames.begin(), kCurveNames.end(), name);
    const auto index = static_cast<size_t>(found - kCurveNames.begin());
    if (found == kCurveNames.end()) {
      faults.push_back({"metrics", QuoteValue(name), absl::StrJoin(kCurveNames, ", ")});
    } else if (std::find(metrics.begin(), metrics.end(), index) == metrics.end()) {
      metrics.push_back(index);
    }
  }
  if (request.from_step() < 0) {
    faults.push_back({"from_step", absl::StrCat(request.from_step()), "0 or more"});
  }
  if (request.to_step() < 0) {
    faults.push_back({"to_step", absl::StrCat(request.to_step()), "0 or more"});
  }
  if (request.points() < 0 || request.points() > kMaxPoints) {
    faults.push_back({"points", absl::StrCat(request.points()),
                      absl::StrCat("1 to ", kMaxPoints, ", or 0 for ", kDefaultPoints)});
  }
  if (!faults.empty()) return ToStatus(faults);
  for (size_t i = 0; request.metrics().empty() && i < kCurveMetrics; ++i) metrics.push_back(i);
  return metrics;
}

bool IsReduced(uint16_t modes) {
  for (int mode = 0; mode < kMaxModes; ++mode) {
    const bool ran = ((modes >> static_cast<unsigned>(mode)) & 1U) != 0;
    if (ran && IsReducedPrecision(static_cast<training::v1::PrecisionMode>(mode))) return true;
  }
  return false;
}

void AddCurve(const std::vector<CurvePoint>& points, size_t metric, GetCurvesResponse& response) {
  training::v1::Curve& curve = *response.add_curves();
  curve.set_metric(std::string(kCurveNames[metric]));
  constexpr float kNone = std::numeric_limits<float>::quiet_NaN();
  for (const CurvePoint& point : points) {
    const CurveRange& range = point.metrics[metric];
    curve.add_min(range.count == 0 ? kNone : range.min);
    curve.add_max(range.count == 0 ? kNone : range.max);
    curve.add_mean(range.count == 0 ? kNone : range.mean);
  }
}

GetCurvesResponse ResponseOf(const Curves& curves, const std::vector<size_t>& metrics) {
  constexpr double kMilliseconds = 1000;
  GetCurvesResponse response;
  for (const CurvePoint& point : curves.points) {
    response.add_first_steps(point.first_step);
    response.add_last_steps(point.last_step);
    response.add_counts(static_cast<int>(point.steps));
    response.add_skipped(point.skipped);
    response.add_training_seconds(point.seconds);
    response.add_times(static_cast<double>(point.time_ms) / kMilliseconds);
    response.add_samples(point.samples);
    response.add_reduced_precision(IsReduced(point.modes));
  }
  for (const size_t metric : metrics) AddCurve(curves.points, metric, response);
  response.set_last_step(curves.last_step);
  response.set_damaged_bytes(curves.damaged_bytes);
  return response;
}

}  // namespace

void TrainingApi::GetCurves(const Caller& caller, const GetCurvesRequest& request,
                            const Callback<GetCurvesResponse>& callback) {
  const absl::StatusOr<std::vector<size_t>> metrics = MetricsOf(request);
  if (!metrics.ok()) return callback(metrics.status());
  const absl::StatusOr<training::v1::Job> job =
      parts_.jobs->queries().Get(caller, request.job_id());
  if (!job.ok()) return callback(job.status());
  const CurveQuery query{.from_step = request.from_step(),
                         .to_step = request.to_step(),
                         .points = request.points() == 0 ? kDefaultPoints : request.points()};
  parts_.files->Post([files = parts_.files, id = job->id(), query, metrics = *metrics, callback] {
    const absl::StatusOr<Curves> curves = ReadCurves(CurveFolder(files->options().dir, id), query);
    if (!curves.ok()) return callback(curves.status());
    callback(ResponseOf(*curves, metrics));
  });
}

}  // namespace genesis
