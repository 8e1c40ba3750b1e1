#pragma once

#include <functional>
#include <string>
#include <vector>

#include "genesis/training/v1/operations.pb.h"
#include "genesis/training/v1/training_service.pb.h"
#include "metrics/exposition.h"
#include "server/http/http_message.h"

namespace genesis {

// Whether traffic should come here, and every reason against it.
struct Readiness {
  bool ready = false;
  std::vector<std::string> reasons;  // Why not; empty when ready.
  std::vector<std::string> notes;    // Faults that do not stop it, e.g. an unreadable gate value.
};

// The sources of the pages; each call returns a snapshot and does not block.
struct RouteSources {
  std::function<Readiness()> readiness;
  std::function<training::v1::StatsResponse()> stats;
  std::function<training::v1::GetServerInfoResponse()> info;
  std::function<std::vector<training::v1::Job>()> recent_jobs;     // Newest first, at most 100.
  std::function<std::vector<training::v1::HistoryRow>()> history;  // Newest last, at most 1000.
  std::function<std::string(MetricsFormat)> metrics;
  // May be empty. Told of each answer, for counting: a path of the table or "other", and the
  // status.
  std::function<void(const std::string& path, int status)> on_response;
};

// GET (and HEAD) / /metrics /healthz /readyz /api/training/status /api/training/stats; anything
// else is a 404 or 405 whose body says what exists. /healthz says that the process serves, /readyz
// (200 or 503) whether traffic should come here. Stateless; thread-safe as far as the sources are.
std::function<HttpResponse(const HttpRequest&)> MakeRoutes(RouteSources sources);

// Whether a request is for what watches the daemon: /healthz, /readyz, /metrics.
bool IsProbe(const HttpRequest& request);

}  // namespace genesis
