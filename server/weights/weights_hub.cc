#include "server/weights/weights_hub.h"

#include <algorithm>

#include "absl/status/statusor.h"
#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "base/files/safetensors_head.h"
#include "base/random_bytes.h"
#include "base/text/field_error.h"
#include "server/ledger/job_state.h"

namespace genesis {
namespace {

using training::v1::PublishedTensor;
using training::v1::PublishedWeights;

constexpr size_t kKeyBytes = 16;

// Returns INVALID_ARGUMENT unless the file consists of the head and the elements of the tensors.
absl::Status CheckFile(const PublishedWeights& weights, const MemoryFile& file) {
  const std::string head = WeightsHead(weights, [](const PublishedTensor&) { return true; });
  uint64_t size = head.size();
  bool fits = true;
  for (const PublishedTensor& tensor : weights.tensors()) {
    const auto bytes = static_cast<uint64_t>(tensor.size_bytes());  // Huge if it is negative.
    fits = fits && bytes <= file.content().size();
    size += bytes;
  }
  fits = fits && size == file.content().size() && file.content().substr(0, head.size()) == head;
  if (fits) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(
      "a file of weights has ", file.content().size(),
      " bytes, which are not those of its description; accepted: the head and then the "
      "elements of each tensor"));
}

absl::Status NoReader(const std::string& job_id) {
  return absl::FailedPreconditionError(absl::StrCat("no reader waits for these weights of job ",
                                                    QuoteValue(job_id),
                                                    "; they are published again when one does"));
}

}  // namespace

void WeightsHub::Add(const std::string& job_id, WeightsKind kind, double interval_seconds,
                     const std::shared_ptr<WeightsWatcher>& watcher) {
  std::shared_ptr<const HeldWeights> newest;
  {
    absl::MutexLock lock(&mutex_);
    Kind& watched = jobs_[job_id][kind];
    watched.watchers.push_back({interval_seconds, watcher});
    newest = watched.newest;
  }
  if (newest != nullptr) watcher->OnWeights(std::move(newest));
}

void WeightsHub::Remove(const std::string& job_id, const WeightsWatcher* watcher) {
  absl::MutexLock lock(&mutex_);
  const auto found = jobs_.find(job_id);
  if (found == jobs_.end()) return;
  for (auto& [kind, watched] : found->second) {
    std::erase_if(watched.watchers,
                  [&](const Watched& each) { return each.watcher.get() == watcher; });
  }
  std::erase_if(found->second, [](const auto& each) { return each.second.watchers.empty(); });
  if (found->second.empty()) jobs_.erase(found);
}

void WeightsHub::Request(const std::string& job_id) {
  training::v1::PublishWeights request;
  request.set_socket(socket_);
  {
    absl::MutexLock lock(&mutex_);
    const auto found = jobs_.find(job_id);
    const Kinds none;
    for (const auto& [kind, watched] : found == jobs_.end() ? none : found->second) {
      training::v1::WantedWeights& wanted = *request.add_wanted();
      wanted.set_format(kind.format);
      wanted.set_average(kind.average);
      wanted.set_interval_seconds(std::min_element(watched.watchers.begin(), watched.watchers.end(),
                                                   [](const Watched& a, const Watched& b) {
                                                     return a.interval_seconds < b.interval_seconds;
                                                   })
                                      ->interval_seconds);
    }
  }
  pool_->RequestWeights(job_id, request);
}

absl::Status WeightsHub::CheckAttempt(const PublishedWeights& weights) const {
  const absl::StatusOr<std::shared_ptr<const JobSnapshot>> snapshot =
      view_->Snapshot(weights.job_id());
  if (!snapshot.ok()) return snapshot.status();
  if (*snapshot != nullptr && (*snapshot)->job.claim() == weights.claim() &&
      IsOnWorker((*snapshot)->job.state())) {
    return absl::OkStatus();
  }
  return absl::FailedPreconditionError(
      absl::StrCat("claim ", weights.claim(), " of job ", QuoteValue(weights.job_id()),
                   " is over; accepted: weights of its present attempt"));
}

WeightsHub::Kind* WeightsHub::FindKind(const PublishedWeights& weights) {
  const auto job = jobs_.find(weights.job_id());
  if (job == jobs_.end()) return nullptr;
  const auto kind = job->second.find({weights.version().format(), weights.version().average()});
  return kind == job->second.end() ? nullptr : &kind->second;
}

absl::Status WeightsHub::CheckWanted(const PublishedWeights& weights) {
  if (absl::Status current = CheckAttempt(weights); !current.ok()) return current;
  absl::MutexLock lock(&mutex_);
  return FindKind(weights) != nullptr ? absl::OkStatus() : NoReader(weights.job_id());
}

absl::Status WeightsHub::Put(PublishedWeights weights, std::unique_ptr<MemoryFile> file) {
  if (absl::Status fits = CheckFile(weights, *file); !fits.ok()) return fits;
  if (absl::Status current = CheckAttempt(weights); !current.ok()) return current;
  auto held = std::make_shared<HeldWeights>();
  held->weights = std::move(weights);
  held->file = std::move(file);
  held->key = absl::BytesToHexString(RandomBytes(kKeyBytes));
  std::vector<std::shared_ptr<WeightsWatcher>> watchers;
  std::shared_ptr<const HeldWeights> before;  // Released without the lock.
  {
    absl::MutexLock lock(&mutex_);
    Kind* const kind = FindKind(held->weights);
    if (kind == nullptr) return NoReader(held->weights.job_id());
    before = kind->newest;
    if (absl::Status kept = Keep(held, *kind); !kept.ok()) return kept;
    for (const Watched& each : kind->watchers) watchers.push_back(each.watcher);
  }
  for (const auto& watcher : watchers) watcher->OnWeights(held);
  return absl::OkStatus();
}

absl::Status WeightsHub::Keep(const std::shared_ptr<const HeldWeights>& held, Kind& kind) {
  if (kind.newest != nullptr && kind.newest->number() >= held->number()) {
    return absl::FailedPreconditionError(
        absl::StrCat("version ", held->number(), " is not after the newest, ",
                     kind.newest->number(), "; accepted: later ones"));
  }
  std::erase_if(kind.held, [](const auto& each) { return each.expired(); });
  if (kind.held.size() >= kMaxAlive && !held->weights.last()) {
    return absl::ResourceExhaustedError(absl::StrCat(
        "slow readers hold ", kMaxAlive, " versions; accepted: later ones, when they have read"));
  }
  kind.held.push_back(held);
  kind.newest = held;
  return absl::OkStatus();
}

std::shared_ptr<const HeldWeights> WeightsHub::Find(const std::string& key) const {
  absl::MutexLock lock(&mutex_);
  for (const auto& [id, kinds] : jobs_) {
    for (const auto& [kind, watched] : kinds) {
      for (const auto& each : watched.held) {
        if (auto held = each.lock(); held != nullptr && held->key == key) return held;
      }
    }
  }
  return nullptr;
}

}  // namespace genesis
