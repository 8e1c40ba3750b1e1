#include "cli/job_curves.h"

#include <cmath>

#include "cli/plot.h"

namespace genesis::cli {
namespace {

using training::v1::Curve;
using training::v1::GetCurvesResponse;

JobSketch SketchOf(const GetCurvesResponse& response) {
  JobSketch sketch;
  for (const Curve& curve : response.curves()) {
    if (curve.metric() == "loss") {
      sketch.loss = Sparkline({curve.mean().begin(), curve.mean().end()});
    } else if (!curve.max().empty() && std::isfinite(*curve.max().rbegin())) {
      sketch.memory_bytes = static_cast<int64_t>(*curve.max().rbegin());
    }
  }
  return sketch;
}

}  // namespace

grpc::Status GetCurves(const std::string& job_id, const std::vector<std::string>& metrics,
                       int points, Session& session, GetCurvesResponse& response) {
  training::v1::GetCurvesRequest request;
  request.set_job_id(job_id);
  for (const std::string& metric : metrics) request.add_metrics(metric);
  request.set_points(points);
  return Call(&Service::GetCurves, request, response, session);
}

const JobSketch& JobSketches::Of(const std::string& job_id) {
  constexpr absl::Duration kInterval = absl::Seconds(5);
  constexpr int kPoints = 12;
  Entry& entry = entries_[job_id];
  const absl::Time now = session_.now();
  if (now - entry.read < kInterval) return entry.sketch;
  entry.read = now;
  GetCurvesResponse response;
  if (GetCurves(job_id, {"loss", "memory_bytes"}, kPoints, session_, response).ok()) {
    entry.sketch = SketchOf(response);
  }
  return entry.sketch;
}

}  // namespace genesis::cli
