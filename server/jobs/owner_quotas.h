#pragma once

#include <atomic>
#include <set>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "config/settings/settings.h"
#include "server/jobs/scheduler.h"
#include "server/ledger/job_table.h"

namespace genesis {

// The limits of each owner. A limit of 0 means no limit.
//
// Owner: JobManager. Threads: any; the writer's for CheckQueued. Failure:
// RESOURCE_EXHAUSTED naming the setting.
class OwnerQuotas {
 public:
  explicit OwnerQuotas(const QuotaSettings& settings) { Set(settings); }
  void Set(const QuotaSettings& settings) {
    queued_jobs_ = settings.queued_jobs;
    slots_ = settings.slots;
  }

  // Checks whether the owner may have one more QUEUED job.
  absl::Status CheckQueued(const JobTable& table, const std::string& owner) const;
  // Checks whether a job of that many ranks could ever start.
  absl::Status CheckRanks(int ranks) const;

  // Returns the IDs of the jobs whose owners would hold too many slots if all started in this
  // order.
  std::set<std::string> OverQuota(const std::vector<std::string>& order,
                                  const std::vector<WaitingJob>& waiting,
                                  const std::vector<HoldingJob>& holding) const;

 private:
  std::atomic<int> queued_jobs_ = 0;
  std::atomic<int> slots_ = 0;
};

}  // namespace genesis
