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

// Jobs of one owner at one priority, the oldest first.
struct Share {
  double used = 0;
  int slots = 0;
  std::deque<const WaitingJob*> jobs;
};

// Takes from the shares until all are empty.
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
    share.jobs.pop_front();
    ++share.slots;
    add(share);
  }
}

}  // namespace

HoldingJob Holding(const training::v1::Job& job, absl::Time start) {
  return {job.id(), job.priority(), job.owner(), start, Remaining(job)};
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
  for (const HoldingJob& job : holding) ++slots[job.owner];
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

std::optional<std::string> ChooseVictim(int priority, const std::vector<HoldingJob>& holding) {
  const HoldingJob* victim = nullptr;
  for (const HoldingJob& job : holding) {
    if (job.priority >= priority) continue;
    if (victim == nullptr || job.priority < victim->priority ||
        (job.priority == victim->priority && job.start > victim->start)) {
      victim = &job;
    }
  }
  if (victim == nullptr) return std::nullopt;
  return victim->id;
}

std::vector<absl::Time> EstimateStarts(size_t waiting, int slots,
                                       const std::vector<HoldingJob>& holding,
                                       std::optional<absl::Duration> expected, absl::Time now) {
  std::priority_queue<absl::Time, std::vector<absl::Time>, std::greater<>> free;
  for (const HoldingJob& job : holding) {
    if (!job.remaining) return {};
    free.push(now + *job.remaining);
  }
  while (free.size() < static_cast<size_t>(slots)) free.push(now);
  std::vector<absl::Time> starts;
  for (size_t i = 0; i < waiting && !free.empty(); ++i) {
    starts.push_back(free.top());
    free.pop();
    // The start after a job of unknown length cannot be known.
    if (expected) free.push(starts.back() + *expected);
  }
  return starts;
}

absl::Duration RestartBackoff(int restarts) {
  if (restarts <= 1) return absl::ZeroDuration();
  const int doublings = std::min(restarts - 2, 6);
  return std::min(kMaxRestartBackoff, absl::Seconds(int64_t{1} << doublings));
}

}  // namespace genesis
