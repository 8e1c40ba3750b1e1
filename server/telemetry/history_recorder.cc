#include "server/telemetry/history_recorder.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include "absl/time/clock.h"
#include "base/steady_time.h"
#include "spdlog/spdlog.h"

namespace genesis {
namespace {

constexpr size_t kMaxWaiting = 10000;
constexpr absl::Duration kForgetPause = absl::Hours(1);

}  // namespace

HistoryRecorder::HistoryRecorder(Options options, HistoryStore* store, Metrics* metrics,
                                 std::function<Rows()> sample)
    : options_(options), store_(store), metrics_(metrics), sample_(std::move(sample)) {}

void HistoryRecorder::Start() {
  next_sample_ = SteadyNow() + options_.interval;
  thread_ = std::thread([this] { Loop(); });
}

void HistoryRecorder::Stop() {
  {
    absl::MutexLock lock(&mutex_);
    stopping_ = true;
  }
  changed_.NotifyAll();
  if (!thread_.joinable()) return;
  thread_.join();
  absl::MutexLock lock(&mutex_);
  if (!waiting_.empty()) metrics_->HistoryRowsLost(static_cast<int64_t>(waiting_.size()));
}

void HistoryRecorder::Note(const training::v1::HistoryRow& row) {
  {
    absl::MutexLock lock(&mutex_);
    waiting_.push_back(row);
    DropOverflow();
  }
  changed_.NotifyAll();
}

void HistoryRecorder::DropOverflow() {
  if (waiting_.size() <= kMaxWaiting) return;
  const auto over = static_cast<int64_t>(waiting_.size() - kMaxWaiting);
  waiting_.erase(waiting_.begin(), waiting_.begin() + over);
  metrics_->HistoryRowsLost(over);
}

void HistoryRecorder::Loop() {
  // Create the table at the start, so that users can query it.
  TellStatus(store_->Append({}));
  for (bool stopping = false; !stopping;) {
    {
      absl::MutexLock lock(&mutex_);
      const auto ready = [this]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
        return stopping_ || (!waiting_.empty() && SteadyNow() >= next_write_);
      };
      // Rows that could not be written, e.g. to a full disk, wait for the next write.
      const absl::Time turn =
          std::min({next_sample_, next_forget_, waiting_.empty() ? next_sample_ : next_write_});
      changed_.WaitUntil(mutex_, turn, ready);
      stopping = stopping_;
    }
    if (!stopping && SteadyNow() >= next_sample_) {
      next_sample_ = SteadyNow() + options_.interval;
      for (const training::v1::HistoryRow& row : sample_()) Note(row);
    }
    if (stopping || SteadyNow() >= next_write_) WriteWaiting();
    if (!stopping && SteadyNow() >= next_forget_) ForgetOld();
  }
}

void HistoryRecorder::WriteWaiting() {
  Rows rows;
  {
    absl::MutexLock lock(&mutex_);
    rows.assign(waiting_.begin(), waiting_.end());
    waiting_.clear();
  }
  if (rows.empty()) return;
  const absl::Status status = store_->Append(rows);
  TellStatus(status);
  next_write_ = status.ok() ? absl::InfinitePast() : SteadyNow() + options_.retry;
  if (status.ok()) return;
  absl::MutexLock lock(&mutex_);
  waiting_.insert(waiting_.begin(), std::make_move_iterator(rows.begin()),
                  std::make_move_iterator(rows.end()));
  DropOverflow();
}

void HistoryRecorder::ForgetOld() {
  const absl::StatusOr<bool> more = store_->Forget(absl::Now() - options_.retention);
  // On a full disk, removals may succeed while inserts fail, so success is not reported here.
  if (!more.ok()) TellStatus(more.status());
  // The rest is removed soon, but not immediately, so that new rows are written in between.
  next_forget_ = SteadyNow() + (more.ok() && *more ? absl::Seconds(1) : kForgetPause);
}

void HistoryRecorder::TellStatus(const absl::Status& status) {
  if (status.code() == told_.code()) return;
  if (status.ok()) {
    spdlog::info("the metrics history can be written again");
  } else {
    spdlog::error("the history cannot be written, which hurts no job: {}", status.ToString());
  }
  told_ = status;
}

}  // namespace genesis
