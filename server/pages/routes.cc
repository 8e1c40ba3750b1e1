#include "server/pages/routes.h"

#include <google/protobuf/util/time_util.h>

#include <map>
#include <memory>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/text/enum_names.h"
#include "base/text/json.h"
#include "config/precision/precision.h"
#include "server/dashboard/dashboard.h"
#include "server/http/accept.h"

namespace genesis {
namespace {

using training::v1::GetServerInfoResponse;
using training::v1::Job;
using training::v1::StatsResponse;

constexpr char kJson[] = "application/json";

struct Route {
  const char* path;
  const char* meaning;
  HttpResponse (*callback)(const RouteSources& sources, const HttpRequest& request);
};

Json ReadinessJson(const Readiness& readiness) {
  return {{"ready", readiness.ready}, {"reasons", readiness.reasons}, {"notes", readiness.notes}};
}

Json PrecisionJson(const training::v1::EffectivePrecision& precision) {
  return {{"effective", ShortEnumName(precision.mode())},
          {"requested", ShortEnumName(precision.requested())},
          {"reason", precision.reason()},
          {"device", precision.device()}};
}

// Returns a job as JSON. Unknown values are null.
Json JobJson(const Job& job) {
  return {{"id", job.id()},
          {"state", ShortEnumName(job.state())},
          {"state_reason", job.state_reason()},
          {"step", job.progress().step()},
          {"total_steps", job.progress().total_steps()},
          {"loss", Measured(job.progress().step() > 0, job.progress().loss())},
          {"precision", job.has_precision() ? PrecisionJson(job.precision()) : Json()}};
}

Json HistoryJson(const training::v1::HistoryRow& row) {
  return {{"job_id", row.job_id()},
          {"timestamp", google::protobuf::util::TimeUtil::ToString(row.time())},
          {"step", row.step()},
          {"mode", ShortEnumName(row.mode())},
          {"skipped_steps", row.overflow_steps()},
          {"loss", Measured(row.has_loss(), row.loss())},
          {"held_out_loss", Measured(row.has_held_out_loss(), row.held_out_loss())},
          {"divergence_ratio", Measured(row.has_divergence_ratio(), row.divergence_ratio())},
          {"loss_scale", Measured(row.has_loss_scale(), row.loss_scale())},
          {"samples_per_second", Measured(row.has_samples_per_second(), row.samples_per_second())}};
}

Json JobsByStateJson(const StatsResponse& stats) {
  const std::map<std::string, int64_t> states(stats.jobs_by_state().begin(),
                                              stats.jobs_by_state().end());
  return states;
}

HttpResponse MetricsPage(const RouteSources& sources, const HttpRequest& request) {
  const bool open_metrics = PrefersOpenMetrics(request.Header("accept"));
  const MetricsFormat format = open_metrics ? MetricsFormat::kOpenMetrics : MetricsFormat::kText;
  HttpResponse response{.content_type = ContentTypeOf(format),
                        .body = sources.metrics(format),
                        .headers = {{"Vary", "Accept, Accept-Encoding"}}};
  if (AcceptsGzip(request.Header("accept-encoding"))) {
    if (std::optional<std::string> compressed = Gzip(response.body)) {
      response.body = *std::move(compressed);
      response.headers.emplace_back("Content-Encoding", "gzip");
    }
  }
  return response;
}

HttpResponse Health(const RouteSources&, const HttpRequest&) { return {.body = "ok\n"}; }

HttpResponse Ready(const RouteSources& sources, const HttpRequest&) {
  const Readiness readiness = sources.readiness();
  return {.status = readiness.ready ? 200 : 503,
          .content_type = kJson,
          .body = PrintJson(ReadinessJson(readiness))};
}

HttpResponse Status(const RouteSources& sources, const HttpRequest&) {
  const GetServerInfoResponse info = sources.info();
  Json jobs = Json::array();
  for (const Job& job : sources.recent_jobs()) jobs.push_back(JobJson(job));
  const Json page = {
      {"server",
       {{"version", info.version()},
        {"start_time", google::protobuf::util::TimeUtil::ToString(info.start_time())},
        {"data_dir", info.data_dir()},
        {"deployment", info.deployment()}}},
      {"fp16_enabled_runtime", sources.stats().fp16_enabled_runtime()},
      {"fp16_allowed", info.reduced_precision_enabled()},
      {"fp16_reason", info.reduced_precision_reason()},
      {"readiness", ReadinessJson(sources.readiness())},
      {"jobs_by_state", JobsByStateJson(sources.stats())},
      {"recent_jobs", jobs}};
  return {.content_type = kJson, .body = PrintJson(page)};
}

HttpResponse Stats(const RouteSources& sources, const HttpRequest&) {
  const StatsResponse stats = sources.stats();
  Json history = Json::array();
  for (const training::v1::HistoryRow& row : sources.history()) {
    if (row.step() > 0) history.push_back(HistoryJson(row));
  }
  const Json page = {
      {"_fp16_stats",
       {{"fp16_enabled_runtime", stats.fp16_enabled_runtime()},
        {"overflow_rate", stats.overflow_rate()},
        {"training_steps", stats.training_steps()},
        {"current_scale", Measured(stats.has_current_scale(), stats.current_scale())}}},
      {"training_history", history},
      {"samples", stats.samples()},
      {"jobs_by_state", JobsByStateJson(stats)},
      {"busy_workers", stats.busy_workers()},
      {"warm_workers", stats.warm_workers()},
      {"slots", stats.slots()}};
  return {.content_type = kJson, .body = PrintJson(page)};
}

HttpResponse Index(const RouteSources& sources, const HttpRequest& request);

constexpr Route kRoutes[] = {
    {"/", "the dashboard, or this list for clients that accept no HTML", Index},
    {"/metrics", "every metric, for Prometheus", MetricsPage},
    {"/healthz", "200 while the process serves", Health},
    {"/readyz", "200 when traffic may come, 503 with the reasons when not", Ready},
    {"/api/training/status", "server, precision gate, readiness and recent jobs", Status},
    {"/api/training/stats", "counters of all jobs, and how the loss of recent ones went", Stats},
};

std::string PathList() {
  std::string list;
  for (const Route& route : kRoutes) {
    absl::StrAppend(&list, "  ", route.path, "  ", route.meaning, "\n");
  }
  list += "  /api/metrics/export  metrics, recent jobs and the history of a day as JSON\n";
  return list;
}

HttpResponse Index(const RouteSources& sources, const HttpRequest&) {
  return {.body = absl::StrCat("Genesis trainer ", sources.info().version(), "\n\n", PathList())};
}

}  // namespace

bool IsProbe(const HttpRequest& request) {
  return request.path == "/healthz" || request.path == "/readyz" || request.path == "/metrics";
}

std::function<HttpResponse(const HttpRequest&)> MakeRoutes(RouteSources route_sources) {
  // The server may copy its handler, so the sources are shared.
  const auto sources = std::make_shared<const RouteSources>(std::move(route_sources));
  return [sources](const HttpRequest& request) {
    HttpResponse response{.status = 404,
                          .body = absl::StrCat("No such page: ", request.path, "\n\n", PathList())};
    std::string counted_path = "other";
    if (std::optional<HttpResponse> dashboard = DashboardResponse(request)) {
      if (sources->on_response) sources->on_response("/", dashboard->status);
      return *std::move(dashboard);
    }
    for (const Route& route : kRoutes) {
      if (request.path != route.path) continue;
      counted_path = route.path;
      if (request.method == "GET" || request.method == "HEAD") {
        response = route.callback(*sources, request);
      } else {
        response = {.status = 405,
                    .body = absl::StrCat(request.method, " is not for ", request.path,
                                         "; use GET or HEAD.\n\n", PathList()),
                    .headers = {{"Allow", "GET, HEAD"}}};
      }
    }
    if (sources->on_response) sources->on_response(counted_path, response.status);
    return response;
  };
}

}  // namespace genesis
