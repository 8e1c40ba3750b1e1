#include "server/jobs/scheduler.h"

#include <algorithm>
#include <cmath>
#include <deque>
#include <functional>
#include <queue>
#include <tuple>

namespace genesis {
namespace {

constexpr absl::Duration kHalfLife = absl::Hours(1);

std::optional<absl::Duration> Remaining(const training::v1::Job& job) {
  const training::v1::Progress& progress = job.progress();
  if (progress.step() == 0 || progress.seconds() <= 0) return std::nullopt;
  const auto left = static_cast<double>(progress.total_steps() - progress.step());
  return absl::Seconds(left * progress.seconds() / static_cast<double>(progress.step()));
}

// Jobs of one owner with the same priority, oldest first.
struct Share {
  double used = 0;
  int slots = 0;
  std::deque<const WaitingJob*> jobs;
};

// Takes jobs from the owners' shares in fair order until all shares are empty.
void TakeFairly(std::map<std::string, Share>& shares, std::vector<std::string>& order) {
  using Turn = std::tuple<int, double, int64_t, Share*>;
  std::priority_queue<Turn, std::vector<Turn>, std::greater<>> turns;
  const auto add = [&turns](Share& share) {
    if (!share.jobs.empty()) {
      turns.emplace(share.slots, share.used, share.jobs.front()->ordinal, &share);
    }
  };
  for (auto& [owner, share] : shares) add(share);
  while (!turns.empty()) {
    Share& share = *std::get<Share*>(turns.top());
    turns.pop();
    order.push_back(share.jobs.front()->id);
    share.slots += share.jobs.front()->slots;
    share.jobs.pop_front();
    add(share);
  }
}

}  // namespace

HoldingJob Holding(const training::v1::Job& job, absl::Time start) {
  return {job.id(), job.priority(), job.owner(),
          start,    Remaining(job), std::max(job.ranks_size(), 1)};
}

void OwnerUsage::Add(const std::string& owner, double seconds, absl::Time now) {
  absl::MutexLock lock(&mutex_);
  const double used = OfLocked(owner, now) + seconds;
  uses_[owner] = {used, now};
}

double OwnerUsage::Of(const std::string& owner, absl::Time now) const {
  absl::MutexLock lock(&mutex_);
  return OfLocked(owner, now);
}

double OwnerUsage::OfLocked(const std::string& owner, absl::Time now) const {
  const auto found = uses_.find(owner);
  if (found == uses_.end()) return 0;
  return found->second.seconds * std::exp2(-absl::FDivDuration(now - found->second.at, kHalfLife));
}

std::vector<std::string> QueueOrder(const std::vector<WaitingJob>& waiting,
                                    const std::vector<HoldingJob>& holding, const OwnerUsage& usage,
                                    absl::Time now) {
  std::map<int, std::vector<const WaitingJob*>, std::greater<>> by_priority;
  for (const WaitingJob& job : waiting) by_priority[job.priority].push_back(&job);
  std::map<std::string, int> slots;
  for (const HoldingJob& job : holding) slots[job.owner] += job.slots;
  std::vector<std::string> order;
  order.reserve(waiting.size());
  for (auto& [priority, jobs] : by_priority) {
    std::sort(jobs.begin(), jobs.end(),
              [](const auto* a, const auto* b) { return a->ordinal < b->ordinal; });
    std::map<std::string, Share> shares;
    for (const WaitingJob* job : jobs) {
      Share& share = shares[job->owner];
      if (share.jobs.empty()) {
        share.used = usage.Of(job->owner, now);
        share.slots = slots[job->owner];
      }
      share.jobs.push_back(job);
    }
    TakeFairly(shares, order);
    for (const auto& [owner, share] : shares) slots[owner] = share.slots;
  }
  return order;
}

std::vector<std::string> ChooseVictims(int priority, int slots, std::vector<HoldingJob> holding) {
  std::erase_if(holding, [priority](const HoldingJob& job) { return job.priority >= priority; });
  std::stable_sort(holding.begin(), holding.end(), [](const HoldingJob& a, const HoldingJob& b) {
    return a.priority != b.priority ? a.priority < b.priority : a.start > b.start;
  });
  std::vector<std::string> victims;
  for (const HoldingJob& job : holding) {
    if (slots <= 0) break;
    victims.push_back(job.id);
    slots -= job.slots;
  }
  return slots <= 0 ? victims : std::vector<std::string>();
}

std::vector<absl::Time> EstimateStarts(const std::vector<int>& waiting, int slots,
                                       const std::vector<HoldingJob>& holding,
                                       std::optional<absl::Duration> expected, absl::Time now) {
  std::priority_queue<absl::Time, std::vector<absl::Time>, std::greater<>> free;
  for (const HoldingJob& job : holding) {
    if (!job.remaining) return {};
    for (int i = 0; i < job.slots; ++i) free.push(now + *job.remaining);
  }
  while (free.size() < static_cast<size_t>(slots)) free.push(now);
  std::vector<absl::Time> starts;
  for (const int needed : waiting) {
    if (free.size() < static_cast<size_t>(needed)) break;
    // The job waits for the last of its slots to become free.
    absl::Time start = now;
    for (int i = 0; i < needed; ++i) {
      start = free.top();
      free.pop();
    }
    starts.push_back(start);
    // Later start times are known only if the duration of a job is.
    for (int i = 0; expected && i < needed; ++i) free.push(start + *expected);
  }
  return starts;
}

absl::Duration RestartBackoff(int restarts) {
  if (restarts <= 1) return absl::ZeroDuration();
  const int doublings = std::min(restarts - 2, 6);
  return std::min(kMaxRestartBackoff, absl::Seconds(int64_t{1} << doublings));
}

}  // namespace genesis
