#pragma once

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace genesis {

// The workers of one job, as a cluster is asked for them.
struct LaunchRequest {
  // Unique to this request, also among daemons: lower-case letters, digits and '-'.
  std::string name;
  std::string job_id;
  int workers = 1;
};

// How all that a cluster had started for a request came to its end.
enum class LaunchEnd {
  kNone,       // It has not.
  kDone,       // By itself, well or with a time limit.
  kFailed,     // By itself, and not well.
  kCancelled,  // Somebody cancelled it.
  kPreempted,  // The cluster took its place away for another.
  kUnknown,    // The cluster does not know it.
};

// A request as the cluster knows it.
struct LaunchStatus {
  std::string name = {};        // LaunchRequest.name
  std::string cluster_id = {};  // "17"
  bool running = false;         // Its workers have been given a place.
  bool suspended = false;       // It has no workers until somebody lets it go on.
  LaunchEnd end = LaunchEnd::kNone;
  // The cluster's own words: valid UTF-8, one line, at most kMaxLineBytes.
  std::string reason = {};
};

// A cluster's scheduler. A request is known by its name there, so that nothing is lost, doubled or
// left behind when the daemon dies between a call and its answer.
//
// Owner: LauncherThreads. Threads: one, which the calls block; each is bounded in time and in what
// it reads. Failure: a status whose message quotes the cluster's own sentence and says what to do.
class Launcher {
 public:
  virtual ~Launcher() = default;
  // Asks for the workers, unless the cluster has the request already. Returns its id there.
  virtual absl::StatusOr<std::string> Submit(const LaunchRequest& request) = 0;
  // Every request whose name begins with `prefix` and that the cluster knows.
  virtual absl::StatusOr<std::vector<LaunchStatus>> Poll(const std::string& prefix) = 0;
  // Ends the request and all of its workers. `cluster_id` may be empty: then all of the name. OK
  // where there is none.
  virtual absl::Status Cancel(const std::string& name, const std::string& cluster_id) = 0;
};

}  // namespace genesis
