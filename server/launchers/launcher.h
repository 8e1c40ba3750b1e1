#pragma once

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace genesis {

// A request to a cluster for the workers of one job.
struct LaunchRequest {
  // Unique among the requests of all daemons: lower-case letters, digits and '-'.
  std::string name;
  std::string job_id;
  int workers = 1;
};

// How the workers that a cluster started for a request ended.
enum class LaunchEnd {
  kNone,       // Not ended.
  kDone,       // Ended by itself, successfully or by a time limit.
  kFailed,     // Ended by itself, with a failure.
  kCancelled,  // Cancelled by a user.
  kPreempted,  // Preempted by the cluster for another job.
  kUnknown,    // Unknown to the cluster.
};

// The state of a request, as reported by the cluster.
struct LaunchStatus {
  std::string name = {};        // LaunchRequest.name
  std::string cluster_id = {};  // E.g. "17".
  bool running = false;         // The workers are placed on hosts.
  bool suspended = false;       // Has no workers until a user resumes it.
  LaunchEnd end = LaunchEnd::kNone;
  // The cluster's own message: valid UTF-8, one line, at most kMaxLineBytes.
  std::string reason = {};
};

// A cluster's scheduler. Requests are identified by name, so that none is lost, duplicated or left
// behind if the daemon dies between a call and its reply.
//
// Owner: LauncherThreads. Threads: one. Calls block, but are limited in time and in
// the bytes they read. Failure: a status whose message quotes the cluster's own
// message and says what to do.
class Launcher {
 public:
  virtual ~Launcher() = default;
  // Submits the request unless the cluster already has it. Returns the ID that the cluster gave it.
  virtual absl::StatusOr<std::string> Submit(const LaunchRequest& request) = 0;
  // Returns all requests that the cluster lists whose names begin with `prefix`.
  virtual absl::StatusOr<std::vector<LaunchStatus>> Poll(const std::string& prefix) = 0;
  // Ends the request and all of its workers. An empty `cluster_id` ends all requests of that name.
  // Returns OK if there is none.
  virtual absl::Status Cancel(const std::string& name, const std::string& cluster_id) = 0;
};

}  // namespace genesis
