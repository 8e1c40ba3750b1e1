#include "server/pages/metrics_export.h"

#include <google/protobuf/util/time_util.h>
#include <prometheus/metric_family.h>

#include <memory>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "base/sql_time.h"
#include "base/text/enum_names.h"
#include "base/text/json.h"
#include "base/timestamp.h"
#include "config/precision/precision.h"
#include "metrics/catalogue.h"
#include "server/base/guard.h"
#include "server/rest/api_error.h"

namespace genesis {
namespace {

using google::protobuf::util::TimeUtil;
using training::v1::HistoryRow;
using training::v1::Job;

constexpr char kPath[] = "/api/metrics/export";
constexpr int kSchemaVersion = 1;
constexpr absl::Duration kHistory = absl::Hours(24);
constexpr int64_t kMaxRows = 20000;
constexpr int kMaxUnderWay = 4;

Json SeriesJson(const prometheus::ClientMetric& series, prometheus::MetricType type) {
  Json json = {{"labels", Json::object()}};
  for (const auto& label : series.label) json["labels"][label.name] = label.value;
  if (type != prometheus::MetricType::Histogram) {
    const bool counter = type == prometheus::MetricType::Counter;
    json["value"] = counter ? series.counter.value : series.gauge.value;
    return json;
  }
  const auto& histogram = series.histogram;
  json["count"] = histogram.sample_count;
  json["sum"] = histogram.sample_sum;
  json["buckets"] = Json::array();
  for (const auto& bucket : histogram.bucket) {
    json["buckets"].push_back({{"le", bucket.upper_bound}, {"count", bucket.cumulative_count}});
  }
  return json;
}

Json MetricsJson(const std::vector<prometheus::MetricFamily>& families) {
  Json metrics = Json::array();
  for (const prometheus::MetricFamily& family : families) {
    const MetricInfo* info = FindMetric(family.name);
    Json series = Json::array();
    for (const auto& each : family.metric) series.push_back(SeriesJson(each, family.type));
    metrics.push_back({{"name", family.name},
                       {"kind", KindName(info->kind)},
                       {"unit", info->unit},
                       {"series", std::move(series)}});
  }
  return metrics;
}

Json HistoryRecordJson(const HistoryRow& row) {
  const bool has_mode = row.mode() != training::v1::PRECISION_MODE_UNSPECIFIED;
  return {{"timestamp", FormatSqlTime(FromTimestamp(row.time()))},
          {"job_id", row.job_id()},
          {"step", row.step()},
          {"mode", Measured(has_mode, ShortEnumName(row.mode()))},
          {"loss", Measured(row.has_loss(), row.loss())},
          {"baseline_loss", Measured(row.has_baseline_loss(), row.baseline_loss())},
          {"loss_scale", Measured(row.has_loss_scale(), row.loss_scale())},
          {"training_steps", row.training_steps()},
          {"fp16_steps", row.fp16_steps()},
          {"overflow_steps", row.overflow_steps()},
          {"overflow_rate", Measured(row.has_overflow_rate(), row.overflow_rate())},
          {"fp16_enabled", row.fp16_enabled()},
          {"memory_allocated_bytes",
           Measured(row.has_memory_allocated_bytes(), row.memory_allocated_bytes())},
          {"samples_per_second", Measured(row.has_samples_per_second(), row.samples_per_second())},
          {"state", ShortEnumName(row.state())},
          {"divergence_ratio", Measured(row.has_divergence_ratio(), row.divergence_ratio())},
          {"held_out_loss", Measured(row.has_held_out_loss(), row.held_out_loss())},
          {"divergences", Measured(row.has_divergences(), row.divergences())}};
}

Json JobRecordJson(const Job& job) {
  return {{"id", job.id()},
          {"owner", job.owner()},
          {"state", ShortEnumName(job.state())},
          {"state_reason", job.state_reason()},
          {"create_time", Measured(job.has_create_time(), TimeUtil::ToString(job.create_time()))},
          {"start_time", Measured(job.has_start_time(), TimeUtil::ToString(job.start_time()))},
          {"end_time", Measured(job.has_end_time(), TimeUtil::ToString(job.end_time()))},
          {"step", job.progress().step()},
          {"total_steps", job.progress().total_steps()},
          {"loss", Measured(job.progress().step() > 0, job.progress().loss())},
          {"restarts", job.restarts()},
          {"precision", Measured(job.has_precision(), ShortEnumName(job.precision().mode()))},
          {"failure_cause", Measured(job.has_failure(), ShortEnumName(job.failure().cause()))}};
}

}  // namespace

bool MetricsExport::IsHere(const HttpRequest& request) { return request.path == kPath; }

void MetricsExport::Handle(const HttpRequest& request, const Respond& respond) {
  if (request.method != "GET" && request.method != "HEAD") {
    parts_.on_response(kPath, 405);
    return respond(
        {.status = 405,
         .body = absl::StrCat(request.method, " is not for ", kPath, "; use GET or HEAD.\n"),
         .headers = {{"Allow", "GET, HEAD"}}});
  }
  if (++under_way_ > kMaxUnderWay) {
    --under_way_;
    parts_.on_response(kPath, 503);
    return respond(ErrorResponse(absl::UnavailableError(absl::StrCat(
        kMaxUnderWay, " exports are under way, which is the most; try again in a moment"))));
  }
  thread_.Post([this, respond] {
    HttpResponse response{.content_type = "application/json"};
    const absl::Status made = Guarded(kPath, [&] { response.body = MakeDocument(); });
    if (!made.ok()) response = ErrorResponse(made);
    --under_way_;
    parts_.on_response(kPath, response.status);
    respond(std::move(response));
  });
}

std::string MetricsExport::MakeDocument() const {
  const training::v1::GetServerInfoResponse info = parts_.info();
  Json jobs = Json::array();
  for (const Job& job : parts_.recent_jobs()) jobs.push_back(JobRecordJson(job));
  using Rows = std::vector<HistoryStore::Row>;
  const absl::StatusOr<Rows> rows =
      parts_.history == nullptr ? Rows()
                                : parts_.history->ReadNewest(absl::Now() - kHistory, kMaxRows + 1);
  const bool truncated = rows.ok() && static_cast<int64_t>(rows->size()) > kMaxRows;
  Json history = Json::array();
  if (rows.ok()) {
    for (size_t i = truncated ? 1 : 0; i < rows->size(); ++i) {
      history.push_back(HistoryRecordJson((*rows)[i].row));
    }
  }
  const Json error = rows.ok() ? Json() : Json(std::string(rows.status().message()));
  return PrintJson({{"schema_version", kSchemaVersion},
                    {"generated_at", TimeUtil::ToString(TimestampNow())},
                    {"server",
                     {{"version", info.version()},
                      {"deployment", info.deployment()},
                      {"start_time", TimeUtil::ToString(info.start_time())},
                      {"data_dir", info.data_dir()},
                      {"fp16_enabled_runtime", parts_.fp16_enabled_runtime()},
                      {"fp16_allowed", info.reduced_precision_enabled()},
                      {"fp16_reason", info.reduced_precision_reason()}}},
                    {"metrics", MetricsJson(parts_.metrics->Collect())},
                    {"recent_jobs", std::move(jobs)},
                    {"history_truncated", truncated},
                    {"history_error", error},
                    {"history", std::move(history)}});
}

}  // namespace genesis
