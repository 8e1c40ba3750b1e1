#include "server/jobs/gang.h"

#include <algorithm>
#include <map>

#include "absl/strings/str_cat.h"
#include "base/local_address.h"
#include "base/random_bytes.h"
#include "base/timestamp.h"
#include "spdlog/spdlog.h"

namespace genesis {
namespace {

using training::v1::Job;
using training::v1::RankAssignment;
using training::v1::RankStatus;

constexpr char kLoopback[] = "127.0.0.1";
constexpr size_t kSecretBytes = 32;
// A rank is a straggler if its step time without waiting exceeds the ranks' median by this factor.
constexpr double kStragglerRatio = 1.2;
// A rank's report is fresh for kFresh or kFreshSteps of its steps, whichever is longer.
constexpr absl::Duration kFresh = absl::Seconds(5);
constexpr double kFreshSteps = 3;

// Returns the address at which ranks of other hosts reach this host's workers: the local
// address of the route to the first remote worker. Empty if it cannot be found; the worker
// then picks an address itself.
std::string OwnAddress(const std::vector<WorkerLease>& leases) {
  const auto remote = std::find_if(leases.begin(), leases.end(),
                                   [](const WorkerLease& lease) { return !lease.peer.empty(); });
  if (remote == leases.end()) return "";
  const absl::StatusOr<std::string> address = LocalAddressTo(remote->peer);
  if (!address.ok()) spdlog::warn("a gang on several hosts: {}", address.status().ToString());
  return address.value_or("");
}

double WorkSeconds(const RankStatus& status) {
  return status.step_seconds() - status.wait_seconds();
}

bool IsFresh(const RankStatus& status, absl::Time now) {
  const absl::Duration age = now - FromTimestamp(status.progress_time());
  return age <= std::max(kFresh, kFreshSteps * absl::Seconds(status.step_seconds()));
}

}  // namespace

bool IsHeldBy(const Job& job, const std::string& worker_id) {
  return job.worker().worker_id() == worker_id ||
         std::any_of(job.ranks().begin(), job.ranks().end(), [&](const RankStatus& status) {
           return status.worker().worker_id() == worker_id;
         });
}

std::string DescribeRank(const Job& job, int rank) {
  if (rank < 0 || rank >= job.ranks_size()) return absl::StrCat("rank ", rank);
  return absl::StrCat("rank ", rank, " on ", job.ranks(rank).worker().device());
}

std::vector<RankAssignment> AssignRanks(const std::vector<WorkerLease>& leases) {
  if (leases.size() < 2) return {};
  std::map<std::string, int> sizes;
  for (const WorkerLease& lease : leases) ++sizes[lease.host];
  const bool one_host = sizes.size() == 1;
  const std::string own_address = one_host ? kLoopback : OwnAddress(leases);
  RankAssignment common;
  common.set_size(static_cast<int>(leases.size()));
  common.set_secret(RandomBytes(kSecretBytes));
  for (const WorkerLease& lease : leases) common.add_devices(lease.worker.device());
  std::vector<RankAssignment> ranks;
  std::map<std::string, int> placed;
  for (const WorkerLease& lease : leases) {
    RankAssignment& rank = ranks.emplace_back(common);
    rank.set_rank(static_cast<int>(ranks.size()) - 1);
    rank.set_local_rank(placed[lease.host]++);
    rank.set_local_size(sizes[lease.host]);
    if (one_host || lease.host.empty()) rank.set_address(own_address);
  }
  return ranks;
}

std::vector<RankStatus> RankStatusesOf(const std::vector<WorkerLease>& leases) {
  if (leases.size() < 2) return {};
  std::vector<RankStatus> ranks;
  for (const WorkerLease& lease : leases) {
    RankStatus& status = ranks.emplace_back();
    status.set_rank(static_cast<int>(ranks.size()) - 1);
    *status.mutable_worker() = lease.worker;
    status.set_host(lease.host);
  }
  return ranks;
}

void NoteRankSteps(const training::v1::Steps& steps, absl::Time now, int rank, Job& job) {
  if (rank >= job.ranks_size()) return;
  RankStatus& status = *job.mutable_ranks(rank);
  status.set_step(steps.progress().step());
  *status.mutable_progress_time() = ToTimestamp(now);
  status.set_device_bytes(steps.cuda_memory_allocated_bytes());
  if (const int count = steps.step_seconds_size(); count > 0) {
    double sum = 0;
    for (const float seconds : steps.step_seconds()) sum += seconds;
    status.set_step_seconds(sum / count);
    status.set_wait_seconds(std::clamp(steps.wait_seconds() / count, 0.0, sum / count));
  }
  MarkStraggler(now, job);
}

void MarkStraggler(absl::Time now, Job& job) {
  std::vector<double> seconds;
  RankStatus* slowest = nullptr;
  bool comparable = true;
  for (RankStatus& status : *job.mutable_ranks()) {
    status.set_straggler(false);
    comparable = comparable && status.step() > 0 && IsFresh(status, now);
    seconds.push_back(WorkSeconds(status));
    if (slowest == nullptr || WorkSeconds(status) > WorkSeconds(*slowest)) slowest = &status;
  }
  if (slowest == nullptr || !comparable) return;
  // The lower median, so that the slower of two ranks can be a straggler.
  const auto middle = seconds.begin() + (std::ssize(seconds) - 1) / 2;
  std::nth_element(seconds.begin(), middle, seconds.end());
  slowest->set_straggler(WorkSeconds(*slowest) > *middle * kStragglerRatio);
}

std::optional<double> LongestWait(const Job& job) {
  std::optional<double> longest;
  for (const RankStatus& status : job.ranks()) {
    if (status.step_seconds() <= 0) return std::nullopt;
    longest = std::max(longest.value_or(0), status.wait_seconds() / status.step_seconds());
  }
  return longest;
}

void NoteEnd(Job& job) {
  const int64_t last = job.progress().step();
  for (RankStatus& status : *job.mutable_ranks()) {
    status.set_step(std::max(status.step(), last));
    status.set_ended(true);
    status.set_straggler(false);
  }
}

}  // namespace genesis
