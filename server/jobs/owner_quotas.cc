#include "server/jobs/owner_quotas.h"

#include <algorithm>
#include <map>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/text/field_error.h"

namespace genesis {

absl::Status OwnerQuotas::CheckQueued(const JobTable& table, const std::string& owner) const {
  const int limit = queued_jobs_;
  if (limit == 0) return absl::OkStatus();
  const std::vector<std::string> queued = table.IdsIn(training::v1::JOB_STATE_QUEUED);
  const auto count = std::count_if(queued.begin(), queued.end(), [&](const std::string& id) {
    return table.Find(id)->owner() == owner;
  });
  if (count < limit) return absl::OkStatus();
  return absl::ResourceExhaustedError(absl::StrCat(count, " jobs of ", QuoteValue(owner),
                                                   " wait and quotas.queued_jobs is ", limit,
                                                   "; try again when one has started"));
}

absl::Status OwnerQuotas::CheckRanks(int ranks) const {
  const int limit = slots_;
  if (limit == 0 || ranks <= limit) return absl::OkStatus();
  return ToStatus({{"distributed.ranks", absl::StrCat(ranks),
                    absl::StrCat("at most ", limit, ", the slots of one owner (quotas.slots)")}});
}

std::set<std::string> OwnerQuotas::OverQuota(const std::vector<std::string>& order,
                                             const std::vector<WaitingJob>& waiting,
                                             const std::vector<HoldingJob>& holding) const {
  const int limit = slots_;
  if (limit == 0) return {};
  std::map<std::string, int> held;
  for (const HoldingJob& job : holding) held[job.owner] += job.slots;
  std::map<std::string, const WaitingJob*> by_id;
  for (const WaitingJob& job : waiting) by_id[job.id] = &job;
  std::set<std::string> over;
  for (const std::string& id : order) {
    const WaitingJob& job = *by_id.at(id);
    if (held[job.owner] + job.slots > limit) {
      over.insert(id);
    } else {
      held[job.owner] += job.slots;
    }
  }
  return over;
}

}  // namespace genesis
