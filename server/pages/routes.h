#pragma once

#include <functional>
#include <string>
#include <vector>

#include "genesis/training/v1/operations.pb.h"
#include "genesis/training/v1/training_service.pb.h"
#include "metrics/exposition.h"
#include "server/http/http_message.h"

namespace genesis {

// The readiness of the daemon for traffic, with every reason against it.
struct Readiness {
  bool ready = false;
  std::vector<std::string> reasons;  // Why not; empty if ready.
  // Problems that do not prevent readiness, e.g. an unreadable gate value.
  std::vector<std::string> notes;
};

// The sources of the pages. Each call returns a snapshot; recent_jobs and history read the store.
struct RouteSources {
  std::function<Readiness()> readiness;
  std::function<training::v1::StatsResponse()> stats;
  std::function<training::v1::GetServerInfoResponse()> info;
  std::function<std::vector<training::v1::Job>()> recent_jobs;     // Newest first, at most 100.
  std::function<std::vector<training::v1::HistoryRow>()> history;  // Newest last, at most 1000.
  std::function<std::string(MetricsFormat)> metrics;
  // Optional. Counts a response, with its status and a
  // path of the table or "other".
  std::function<void(const std::string& path, int status)> on_response;
};

// Returns a handler of GET and HEAD for the dashboard (server/dashboard) and / /metrics /healthz
// /readyz /api/training/status /api/training/stats; others get a 404 or 405 whose body lists these.
// /healthz: the process serves; /readyz: 200 or 503 for traffic. As thread-safe as the sources.
std::function<HttpResponse(const HttpRequest&)> MakeRoutes(RouteSources sources);

// Returns true for monitoring requests: /healthz, /readyz, /metrics.
bool IsProbe(const HttpRequest& request);

}  // namespace genesis
