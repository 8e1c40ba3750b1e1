#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "genesis/training/v1/job.pb.h"
#include "server/jobs/job_attempts.h"
#include "server/jobs/job_context.h"
#include "server/launchers/launchers.h"

namespace genesis {

// The requests for workers that a cluster's scheduler starts for jobs. A request is created for a
// queued job, ended when its attempt is over or no job needs it, and replaced if the cluster ends
// it too early. Each is durable, under a unique name, before it is sent to the cluster. Any request
// that the cluster lists under this daemon's prefix without a job is ended. So no request is lost,
// duplicated or left behind when the daemon dies.
//
// A few times a second, the actual state is compared with the desired one, so no notification is
// needed when a job is paused, cancelled or done.
//
// Owner: JobManager. Threads: the writer's; calls to clusters run on other threads.
class Submissions {
 public:
  Submissions(const JobContext& context, JobAttempts* attempts)
      : context_(context), launchers_(context.options.launchers), attempts_(*attempts) {}

  // Tracks the requests of an earlier daemon again. Called after the table is loaded.
  void Recover();
  // Called a few times a second.
  void OnTime();

 private:
  using Job = training::v1::Job;
  using Kind = training::v1::LauncherKind;

  // A request that the cluster may have.
  struct Tracked {
    Kind kind;
    std::string job_id;
    std::string cluster_id = {};  // Empty until known.
    absl::Time seen = {};         // Time at which the cluster accepted or listed it.
    bool calling = false;         // A call about it is in progress.
    absl::Time next_call = absl::InfinitePast();
    int failures = 0;    // Failed calls in a row.
    bool ended = false;  // This daemon asked the cluster to end it.
    absl::Time end_at = absl::InfiniteFuture();
    // Job.restarts when the attempt was last on workers. If Job.restarts is still the same, the end
    // of these workers has not been counted yet.
    int restarts = 0;
  };

  // Creates a name for the job's workers. It is durable after this change.
  void Begin(const Job& job);
  void Submit(const std::string& name, Tracked& tracked);
  void OnSubmitted(const std::string& name, const absl::StatusOr<std::string>& id);
  // Ends requests that no job needs.
  void Tidy(const std::string& name, Tracked& tracked);
  void Cancel(const std::string& name, Tracked& tracked);
  void CancelStranger(Kind kind, const LaunchStatus& status);
  void Poll(Kind kind);
  void OnPolled(Kind kind, const absl::StatusOr<std::vector<LaunchStatus>>& all);
  // Treats a request that the cluster does not list as ended; if it is wanted, only after kListing.
  void OnUnlisted(const std::string& name, const Tracked& tracked);
  void OnStatus(const std::string& name, Tracked& tracked, const LaunchStatus& status);
  // Keeps a request whose workers the cluster stopped and will restart.
  void Keep(const std::string& name, Tracked& tracked, const Job& job);
  void OnEnded(const std::string& name, const Tracked& tracked, const LaunchStatus& status);
  // Applies the end of the job's newest request to the job.
  void EndFor(const Job& job, const Tracked& tracked, const LaunchStatus& status);
  // Returns the job whose newest request this is; nullptr for none.
  const Job* JobOf(const std::string& name, const Tracked& tracked) const;
  void SetReason(const Job& job, const std::string& reason);
  std::string prefix() const;
  std::vector<Kind> kinds() const;
  absl::Duration PollPause(Kind kind) const;
  static absl::Duration Backoff(int failures);

  const JobContext& context_;
  Launchers* const launchers_;
  JobAttempts& attempts_;
  // Name of this daemon among those that share a cluster.
  std::string daemon_;
  std::map<std::string, Tracked> tracked_;  // Keyed by name.
  std::map<Kind, absl::Time> next_polls_;
  std::map<Kind, bool> polling_;
  std::map<Kind, std::string> problems_;  // Newest poll error per cluster; empty for none.
};

}  // namespace genesis
