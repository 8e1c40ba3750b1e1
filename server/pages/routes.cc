#include "server/pages/routes.h"

#include <google/protobuf/util/time_util.h>

#include <map>
#include <memory>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "config/job/job_names.h"
#include "config/precision/precision.h"
#include "server/http/accept.h"
#include "server/rest/json.h"

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

JsonObject ReadinessJson(const Readiness& readiness) {
  return JsonObject()
      .Set("ready", readiness.ready)
      .Set("reasons", readiness.reasons)
      .Set("notes", readiness.notes);
}

JsonObject JobJson(const Job& job) {
  JsonObject json;
  json.Set("id", job.id())
      .Set("state", JobStateName(job.state()))
      .Set("state_reason", job.state_reason())
      .Set("step", job.progress().step())
      .Set("total_steps", job.progress().total_steps());
  // Before they are known they are null: 0 would be the best loss there is.
  if (job.progress().step() > 0) {
    json.Set("loss", job.progress().loss());
  } else {
    json.SetNull("loss");
  }
  if (job.has_precision()) {
    json.Set("precision", JsonObject()
                              .Set("effective", PrecisionName(job.precision().mode()))
                              .Set("requested", PrecisionName(job.precision().requested()))
                              .Set("reason", job.precision().reason())
                              .Set("device", job.precision().device()));
  } else {
    json.SetNull("precision");
  }
  return json;
}

// Null where nothing was measured.
void SetMeasured(const char* name, bool measured, double value, JsonObject& json) {
  if (measured) {
    json.Set(name, value);
  } else {
    json.SetNull(name);
  }
}

JsonObject HistoryJson(const training::v1::HistoryRow& row) {
  JsonObject json;
  json.Set("job_id", row.job_id())
      .Set("timestamp", google::protobuf::util::TimeUtil::ToString(row.time()))
      .Set("step", row.step())
      .Set("mode", PrecisionName(row.mode()))
      .Set("skipped_steps", row.overflow_steps());
  SetMeasured("loss", row.has_loss(), row.loss(), json);
  SetMeasured("held_out_loss", row.has_held_out_loss(), row.held_out_loss(), json);
  SetMeasured("divergence_ratio", row.has_divergence_ratio(), row.divergence_ratio(), json);
  SetMeasured("loss_scale", row.has_loss_scale(), row.loss_scale(), json);
  SetMeasured("samples_per_second", row.has_samples_per_second(), row.samples_per_second(), json);
  return json;
}

JsonObject JobsByStateJson(const StatsResponse& stats) {
  JsonObject json;
  const std::map<std::string, int64_t> states(stats.jobs_by_state().begin(),
                                              stats.jobs_by_state().end());
  for (const auto& [state, jobs] : states) json.Set(state, jobs);
  return json;
}

HttpResponse Metrics(const RouteSources& sources, const HttpRequest& request) {
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
          .body = ReadinessJson(readiness).Print()};
}

HttpResponse Status(const RouteSources& sources, const HttpRequest&) {
  const GetServerInfoResponse info = sources.info();
  JsonObject server;
  server.Set("version", info.version())
      .Set("start_time", google::protobuf::util::TimeUtil::ToString(info.start_time()))
      .Set("data_dir", info.data_dir())
      .Set("deployment", info.deployment());
  std::vector<JsonObject> jobs;
  for (const Job& job : sources.recent_jobs()) jobs.push_back(JobJson(job));
  JsonObject page;
  page.Set("server", server)
      .Set("fp16_enabled_runtime", sources.stats().fp16_enabled_runtime())
      .Set("fp16_allowed", info.reduced_precision_enabled())
      .Set("fp16_reason", info.reduced_precision_reason())
      .Set("readiness", ReadinessJson(sources.readiness()))
      .Set("jobs_by_state", JobsByStateJson(sources.stats()))
      .Set("recent_jobs", jobs);
  return {.content_type = kJson, .body = page.Print()};
}

HttpResponse Stats(const RouteSources& sources, const HttpRequest&) {
  const StatsResponse stats = sources.stats();
  std::vector<JsonObject> history;
  for (const training::v1::HistoryRow& row : sources.history()) {
    if (row.step() > 0) history.push_back(HistoryJson(row));
  }
  JsonObject fp16;
  fp16.Set("fp16_enabled_runtime", stats.fp16_enabled_runtime())
      .Set("overflow_rate", stats.overflow_rate())
      .Set("training_steps", stats.training_steps());
  SetMeasured("current_scale", stats.has_current_scale(), stats.current_scale(), fp16);
  JsonObject page;
  page.Set("_fp16_stats", fp16)
      .Set("training_history", history)
      .Set("samples", stats.samples())
      .Set("jobs_by_state", JobsByStateJson(stats))
      .Set("busy_workers", int64_t{stats.busy_workers()})
      .Set("warm_workers", int64_t{stats.warm_workers()})
      .Set("slots", int64_t{stats.slots()});
  return {.content_type = kJson, .body = page.Print()};
}

HttpResponse Index(const RouteSources& sources, const HttpRequest& request);

constexpr Route kRoutes[] = {
    {"/", "this page", Index},
    {"/metrics", "every metric, for Prometheus", Metrics},
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
  // The server may copy its handler; the sources are shared, not copied.
  const auto sources = std::make_shared<const RouteSources>(std::move(route_sources));
  return [sources](const HttpRequest& request) {
    HttpResponse response{.status = 404,
                          .body = absl::StrCat("No such page: ", request.path, "\n\n", PathList())};
    std::string counted_path = "other";
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
