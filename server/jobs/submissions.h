#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "genesis/training/v1/job.pb.h"
#include "server/jobs/job_attempts.h"
#include "server/launchers/launchers.h"

namespace genesis {

// The requests for workers of jobs that a cluster's scheduler is to start: made for a job that is
// queued, ended once its attempt is over or nobody wants it any more, and made again when the
// cluster has ended one too early. Each is durable, with a name of its own, before the cluster
// hears of it; whatever the cluster has under this daemon's prefix and no job wants is ended. So
// none is lost, doubled or left behind when the daemon dies.
//
// A few times a second it compares what is with what should be, so that nobody has to tell it of
// jobs that are paused, cancelled or done.
//
// Owner: JobManager. Threads: the writer's; calls to clusters are made elsewhere.
class Submissions {
 public:
  Submissions(const JobAttempts::Parts& parts, JobAttempts* attempts)
      : options_(parts.options),
        table_(parts.ledger.table()),
        writer_(parts.ledger.writer()),
        clock_(parts.ledger.clock()),
        stops_(parts.stops),
        dispatcher_(parts.dispatcher),
        workers_(parts.workers),
        launchers_(parts.options.launchers),
        attempts_(*attempts) {}

  // After the table is loaded: the requests of an earlier daemon are still its jobs'.
  void Recover();
  // A few times a second.
  void OnTime();

 private:
  using Job = training::v1::Job;
  using Kind = training::v1::LauncherKind;

  // A request that the cluster may know.
  struct Tracked {
    Kind kind;
    std::string job_id;
    std::string cluster_id = {};  // Empty until it is known.
    absl::Time seen = {};         // By the cluster: accepted, or listed.
    bool calling = false;         // A call about it is under way.
    absl::Time next_call = absl::InfinitePast();
    int failures = 0;    // Of calls, in a row.
    bool ended = false;  // By this daemon.
    absl::Time end_at = absl::InfiniteFuture();
    int restarts = 0;  // Of the job, when its attempt ran.
  };

  // Makes a name for the workers of the job, which is durable after this change.
  void Begin(const Job& job);
  void Submit(const std::string& name, Tracked& tracked);
  void OnSubmitted(const std::string& name, const absl::StatusOr<std::string>& id);
  // Ends what no job wants.
  void Tidy(const std::string& name, Tracked& tracked);
  void Cancel(const std::string& name, Tracked& tracked);
  void CancelStranger(Kind kind, const LaunchStatus& status);
  void Poll(Kind kind);
  void OnPolled(Kind kind, const absl::StatusOr<std::vector<LaunchStatus>>& all);
  // For one that the cluster does not list. It is over, once the cluster has had the time to.
  void OnUnlisted(const std::string& name, const Tracked& tracked);
  void OnStatus(const std::string& name, Tracked& tracked, const LaunchStatus& status);
  // Keeps a request whose workers the cluster sent away and will start again.
  void Keep(const std::string& name, Tracked& tracked, const Job& job);
  void OnEnded(const std::string& name, const Tracked& tracked, const LaunchStatus& status);
  // The consequences for its job, which it was the newest request of.
  void EndFor(const Job& job, const Tracked& tracked, const LaunchStatus& status);
  // The job that the request is the newest of; nullptr for none.
  const Job* JobOf(const std::string& name, const Tracked& tracked) const;
  void SetReason(const Job& job, const std::string& reason);
  std::string prefix() const;
  std::vector<Kind> kinds() const;
  absl::Duration PollPause(Kind kind) const;
  static absl::Duration Backoff(int failures);

  const JobManagerOptions& options_;
  JobTable& table_;
  Writer& writer_;
  const Clock& clock_;
  JobStops& stops_;
  Dispatcher& dispatcher_;
  Workers* const workers_;
  Launchers* const launchers_;
  JobAttempts& attempts_;
  std::string daemon_;                      // Its name among those that ask one cluster.
  std::map<std::string, Tracked> tracked_;  // By name.
  std::map<Kind, absl::Time> next_polls_;
  std::map<Kind, bool> polling_;
  std::map<Kind, std::string> problems_;  // Of the newest poll; empty for none.
};

}  // namespace genesis
