#include "server/api/watch_feed.h"

#include <algorithm>

#include "absl/status/statusor.h"
#include "server/api/event_filter.h"
#include "server/base/guard.h"
#include "server/ledger/job_state.h"

namespace genesis {
namespace {

using training::v1::JobEvent;
using training::v1::WatchJobResponse;

// Maximum events in one message, and maximum events queued for a slow reader.
constexpr int kMaxEvents = 256;
constexpr size_t kMaxBytes = size_t{64} * 1024;  // Maximum bytes of events in one message.

}  // namespace

absl::Status WatchFeed::Watch() {
  const int64_t newest = jobs_->view().LastSequence();
  if (absl::Status status = CheckCursor(request_.cursor(), newest, -1); !status.ok()) return status;
  const absl::Status opened =
      call_.gate().watches().Open(shared_from_this(), call_.caller().name, call_.protocol());
  if (!opened.ok()) return opened;
  {
    absl::MutexLock lock(&mutex_);
    open_ = true;
    sent_sequence_ = request_.cursor() == -1 ? newest : request_.cursor();
    // A client that requests only future events needs nothing from the store.
    behind_ = request_.cursor() != -1;
  }
  return jobs_->queries().Watch(call_.caller(), job_id_, shared_from_this());
}

void WatchFeed::Detach() {
  bool was_open = false;
  {
    absl::MutexLock lock(&mutex_);
    sink_ = nullptr;
    was_open = std::exchange(open_, false);
  }
  if (was_open) call_.gate().watches().Close(this);
  jobs_->queries().Unwatch(job_id_, this);
}

void WatchFeed::Notify(std::shared_ptr<const JobSnapshot> snapshot, const JobEvents& events) {
  absl::MutexLock lock(&mutex_);
  if (snapshot->version > seen_version_) {
    if (newest_ != nullptr) ++dropped_;
    seen_version_ = snapshot->version;
    newest_ = std::move(snapshot);
  }
  pending_.insert(pending_.end(), events.begin(), events.end());
  if (pending_.size() > kMaxEvents) {
    pending_.clear();
    behind_ = true;
  }
  if (std::exchange(busy_, true)) return;
  call_.gate().Post([self = shared_from_this()] { self->Advance(); });
}

void WatchFeed::CheckAdmission() {
  if (absl::Status admitted = call_.StillAdmitted(); !admitted.ok()) End(admitted);
}

void WatchFeed::Advance() {
  if (absl::Status admitted = call_.StillAdmitted(); !admitted.ok()) return End(admitted);
  bool behind = false;
  int64_t after = 0;
  {
    absl::MutexLock lock(&mutex_);
    behind = std::exchange(behind_, false);
    if (behind) pending_.clear();  // EventsOf reads them, except log lines.
    after = sent_sequence_;
  }
  absl::StatusOr<std::vector<JobEvent>> replay = std::vector<JobEvent>();
  if (behind) {
    const absl::Status read = Guarded("WatchJob", [&] { replay = EventsOf(after); });
    if (!read.ok()) replay = read;
  }
  absl::MutexLock lock(&mutex_);
  if (replay.ok()) {
    WriteNext(*replay);
  } else {
    FinishOnce(replay.status());
  }
}

absl::StatusOr<std::vector<JobEvent>> WatchFeed::EventsOf(int64_t after) const {
  absl::StatusOr<EventPage> page = jobs_->view().EventsAfter(
      {.job_id = job_id_}, after, kMaxEvents, /*skip_dropped=*/request_.cursor() == 0);
  if (!page.ok()) return page.status();
  // Deletion events belong to earlier jobs with this ID.
  std::erase_if(page->events, [](const JobEvent& event) { return event.has_deleted(); });
  return std::move(page->events);
}

void WatchFeed::End(const absl::Status& status) {
  absl::MutexLock lock(&mutex_);
  FinishOnce(status);
}

void WatchFeed::WriteNext(const std::vector<JobEvent>& replay) {
  if (sink_ == nullptr || finished_) return;
  const bool was_final = IsFinal(response_.job().state());
  WatchJobResponse next;
  if (newest_ != nullptr) {
    *next.mutable_job() = newest_->job;
  } else {
    next.mutable_job()->Swap(response_.mutable_job());
  }
  AddEvents(replay, next);
  const bool has_news = newest_ != nullptr || !next.events().empty();
  newest_.reset();
  next.set_dropped_updates(std::exchange(dropped_, 0));
  next.set_cursor(sent_sequence_);
  response_.Swap(&next);
  busy_ = has_news;
  if (has_news) {
    sink_->Write(response_);
  } else if (was_final) {
    FinishOnce(absl::OkStatus());
  }
}

void WatchFeed::AddEvents(const std::vector<JobEvent>& replay, WatchJobResponse& next) {
  size_t bytes = 0;
  const auto add = [&](const JobEvent& event) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    bytes += event.ByteSizeLong();
    if (next.events_size() == kMaxEvents || (!next.events().empty() && bytes > kMaxBytes)) {
      return false;
    }
    *next.add_events() = event;
    sent_sequence_ = std::max(sent_sequence_, event.sequence());
    return true;
  };
  // A full page may not be the last one.
  behind_ = behind_ || replay.size() == kMaxEvents;
  for (const JobEvent& event : replay) {
    if (add(event)) continue;
    behind_ = true;
    break;
  }
  while (!behind_ && !pending_.empty()) {
    // Events read from the store have also arrived through Notify. Log lines have no sequence
    // number.
    const bool sent = pending_.front()->sequence() <= sent_sequence_;
    if ((!sent || pending_.front()->has_log_line()) && !add(*pending_.front())) return;
    pending_.pop_front();
  }
}

void WatchFeed::FinishOnce(const absl::Status& status) {
  if (sink_ == nullptr || finished_) return;
  finished_ = true;
  call_.Done(job_id_, status);
  sink_->Finish(status);
}

}  // namespace genesis
