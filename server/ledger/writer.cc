#include "server/ledger/writer.h"

#include <pthread.h>

#include <algorithm>
#include <utility>

#include "absl/time/time.h"
#include "base/steady_time.h"
#include "server/base/guard.h"
#include "spdlog/spdlog.h"

namespace genesis {
namespace {

constexpr absl::Duration kTick = absl::Milliseconds(200);
constexpr absl::Duration kCommitRetryPause = absl::Seconds(1);

}  // namespace

void Writer::Start() {
  thread_ = std::thread([this] { Loop(); });
  pthread_setname_np(thread_.native_handle(), "writer");
}

void Writer::Stop() {
  {
    absl::MutexLock lock(&mutex_);
    stopping_ = true;
  }
  changed_.NotifyAll();
  if (thread_.joinable()) thread_.join();
}

void Writer::Post(Change change) {
  {
    absl::MutexLock lock(&mutex_);
    waiting_.push_back(std::move(change));
  }
  changed_.NotifyAll();
}

absl::Status Writer::store_status() const {
  absl::MutexLock lock(&mutex_);
  return store_status_;
}

void Writer::SetStoreStatus(const absl::Status& status) {
  absl::MutexLock lock(&mutex_);
  if (status != store_status_) {
    if (status.ok()) {
      spdlog::info("the store takes changes again");
    } else {
      spdlog::error("the store refuses changes: {}", status.ToString());
    }
  }
  store_status_ = status;
}

void Writer::Loop() {
  for (;;) {
    std::deque<Change> changes;
    {
      absl::MutexLock lock(&mutex_);
      const auto ready = [this]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
        return stopping_ || !waiting_.empty();
      };
      // The table may have something to write even if there are no changes.
      changed_.WaitUntil(mutex_, std::min(table_->NextDue(), next_tick_), ready);
      if (stopping_ && waiting_.empty()) break;
      changes.swap(waiting_);
    }
    if (SteadyNow() >= next_tick_) {
      next_tick_ = SteadyNow() + kTick;
      // If its commit fails, the next tick does the same work.
      changes.push_back({on_tick_, [](const absl::Status&) {}});
    }
    ApplyAll(std::move(changes));
  }
  SetStoreStatus(table_->Flush());
}

void Writer::ApplyAll(std::deque<Change> changes) {
  for (size_t i = 0; i < changes.size();) {
    const absl::Status applied = Guarded("a change of jobs", changes[i].apply);
    if (applied.ok()) {
      ++i;
      continue;
    }
    // Drop this change for good, and apply the earlier changes again.
    table_->Discard();
    if (changes[i].refused) changes[i].refused(applied);
    changes.erase(changes.begin() + static_cast<std::ptrdiff_t>(i));
    i = 0;
  }
  const absl::Status status = table_->Commit();
  SetStoreStatus(status);
  if (status.ok()) return;
  std::deque<Change> facts;
  for (Change& change : changes) {
    if (change.refused) {
      change.refused(status);
    } else {
      facts.push_back(std::move(change));
    }
  }
  if (facts.empty()) return;
  absl::MutexLock lock(&mutex_);
  waiting_.insert(waiting_.begin(), std::make_move_iterator(facts.begin()),
                  std::make_move_iterator(facts.end()));
  // While the store fails, no other change can be committed, so this thread may wait. Stop() ends
  // the wait and drops the reports; the next start recovers the jobs as they are in the store.
  const auto stopping = [this]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) { return stopping_; };
  changed_.WaitUntil(mutex_, SteadyNow() + kCommitRetryPause, stopping);
  if (stopping_) waiting_.clear();
}

}  // namespace genesis
