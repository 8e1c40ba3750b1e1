#include "server/pages/metrics_export.h"

#include <google/protobuf/util/time_util.h>
#include <prometheus/metric_family.h>

#include <cmath>
#include <memory>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/time/clock.h"
#include "base/sql_time.h"
#include "base/timestamp.h"
#include "config/job/job_names.h"
#include "config/precision/precision.h"
#include "metrics/catalogue.h"
#include "server/base/guard.h"
#include "server/rest/api_error.h"
#include "server/rest/json_writer.h"

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

// JSON has no NaN and no infinity.
std::string Number(double value) {
  return std::isfinite(value) ? absl::StrFormat("%.17g", value) : "null";
}

std::string Boolean(bool value) { return value ? "true" : "false"; }

void PutMeasured(const char* key, bool measured, double value, JsonWriter& json) {
  json.PutRaw(key, measured ? Number(value) : "null");
}

void WriteSeries(const prometheus::ClientMetric& series, prometheus::MetricType type,
                 JsonWriter& json) {
  json.Begin('{').Begin("labels", '{');
  for (const auto& label : series.label) json.Put(label.name, label.value);
  json.End();
  if (type != prometheus::MetricType::Histogram) {
    const bool counter = type == prometheus::MetricType::Counter;
    json.PutRaw("value", Number(counter ? series.counter.value : series.gauge.value)).End();
    return;
  }
  const auto& histogram = series.histogram;
  json.PutRaw("count", absl::StrCat(histogram.sample_count));
  json.PutRaw("sum", Number(histogram.sample_sum)).Begin("buckets", '[');
  for (const auto& bucket : histogram.bucket) {
    json.Begin('{')
        .PutRaw("le", Number(bucket.upper_bound))
        .PutRaw("count", absl::StrCat(bucket.cumulative_count))
        .End();
  }
  json.End().End();
}

void WriteMetrics(const std::vector<prometheus::MetricFamily>& families, JsonWriter& json) {
  json.Begin("metrics", '[');
  for (const prometheus::MetricFamily& family : families) {
    const MetricInfo* info = FindMetric(family.name);
    json.Begin('{').Put("name", family.name);
    json.Put("kind", KindName(info->kind)).Put("unit", info->unit).Begin("series", '[');
    for (const auto& series : family.metric) WriteSeries(series, family.type, json);
    json.End().End();
  }
  json.End();
}

void WriteRow(const HistoryRow& row, JsonWriter& json) {
  json.Begin('{');
  json.Put("timestamp", FormatSqlTime(FromTimestamp(row.time())));
  json.Put("job_id", row.job_id()).PutRaw("step", absl::StrCat(row.step()));
  if (row.mode() == training::v1::PRECISION_MODE_UNSPECIFIED) {
    json.PutRaw("mode", "null");
  } else {
    json.Put("mode", PrecisionName(row.mode()));
  }
  PutMeasured("loss", row.has_loss(), row.loss(), json);
  PutMeasured("baseline_loss", row.has_baseline_loss(), row.baseline_loss(), json);
  PutMeasured("loss_scale", row.has_loss_scale(), row.loss_scale(), json);
  json.PutRaw("training_steps", absl::StrCat(row.training_steps()));
  json.PutRaw("fp16_steps", absl::StrCat(row.fp16_steps()));
  json.PutRaw("overflow_steps", absl::StrCat(row.overflow_steps()));
  PutMeasured("overflow_rate", row.has_overflow_rate(), row.overflow_rate(), json);
  json.PutRaw("fp16_enabled", Boolean(row.fp16_enabled()));
  json.PutRaw("memory_allocated_bytes", row.has_memory_allocated_bytes()
                                            ? absl::StrCat(row.memory_allocated_bytes())
                                            : "null");
  PutMeasured("samples_per_second", row.has_samples_per_second(), row.samples_per_second(), json);
  json.Put("state", JobStateName(row.state()));
  PutMeasured("divergence_ratio", row.has_divergence_ratio(), row.divergence_ratio(), json);
  PutMeasured("held_out_loss", row.has_held_out_loss(), row.held_out_loss(), json);
  json.End();
}

void WriteTime(const char* key, bool is_set, const google::protobuf::Timestamp& time,
               JsonWriter& json) {
  json.PutRaw(key, is_set ? QuoteJson(TimeUtil::ToString(time)) : "null");
}

void WriteJob(const Job& job, JsonWriter& json) {
  json.Begin('{').Put("id", job.id()).Put("owner", job.owner());
  json.Put("state", JobStateName(job.state())).Put("state_reason", job.state_reason());
  WriteTime("create_time", job.has_create_time(), job.create_time(), json);
  WriteTime("start_time", job.has_start_time(), job.start_time(), json);
  WriteTime("end_time", job.has_end_time(), job.end_time(), json);
  json.PutRaw("step", absl::StrCat(job.progress().step()));
  json.PutRaw("total_steps", absl::StrCat(job.progress().total_steps()));
  PutMeasured("loss", job.progress().step() > 0, job.progress().loss(), json);
  json.PutRaw("restarts", absl::StrCat(job.restarts()));
  if (job.has_precision()) {
    json.Put("precision", PrecisionName(job.precision().mode()));
  } else {
    json.PutRaw("precision", "null");
  }
  if (job.has_failure()) {
    json.Put("failure_cause", FailureCauseName(job.failure().cause()));
  } else {
    json.PutRaw("failure_cause", "null");
  }
  json.End();
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
  JsonWriter json;
  json.Begin('{').PutRaw("schema_version", absl::StrCat(kSchemaVersion));
  json.Put("generated_at", TimeUtil::ToString(TimestampNow()));
  json.Begin("server", '{').Put("version", info.version()).Put("deployment", info.deployment());
  json.Put("start_time", TimeUtil::ToString(info.start_time())).Put("data_dir", info.data_dir());
  json.PutRaw("fp16_enabled_runtime", Boolean(parts_.fp16_enabled_runtime()));
  json.PutRaw("fp16_allowed", Boolean(info.reduced_precision_enabled()));
  json.Put("fp16_reason", info.reduced_precision_reason()).End();
  WriteMetrics(parts_.metrics->Collect(), json);
  json.Begin("recent_jobs", '[');
  for (const Job& job : parts_.recent_jobs()) WriteJob(job, json);
  json.End();
  const auto rows = parts_.history->ReadNewest(absl::Now() - kHistory, kMaxRows + 1);
  const bool truncated = rows.ok() && static_cast<int64_t>(rows->size()) > kMaxRows;
  json.PutRaw("history_truncated", Boolean(truncated));
  json.PutRaw("history_error", rows.ok() ? "null" : QuoteJson(rows.status().message()));
  json.Begin("history", '[');
  if (rows.ok()) {
    for (size_t i = truncated ? 1 : 0; i < rows->size(); ++i) WriteRow((*rows)[i].row, json);
  }
  json.End().End();
  return json.Take();
}

}  // namespace genesis
