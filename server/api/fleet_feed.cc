#include "server/api/fleet_feed.h"

#include "server/base/guard.h"

namespace genesis {
namespace {

using training::v1::JobEvent;

constexpr int kMaxFleetEvents = 256;
constexpr size_t kMaxFleetBytes = size_t{256} * 1024;  // Maximum bytes of events in one message.
constexpr int kMaxProgress = 1000;                     // Jobs in one message.
constexpr int kBookmarkSeconds = 10;
// Pages without a matching event that one call of Advance reads before other readers have a turn.
constexpr int kMaxEmptyPages = 16;

}  // namespace

absl::Status FleetFeed::Watch() {
  absl::StatusOr<ParsedFilter> filter = ReadFilter(request_.filter(), /*sends_progress=*/true);
  if (!filter.ok()) return filter.status();
  const absl::Status limited = jobs_->queries().LimitOwner(call_.caller(), filter->events.owner);
  if (!limited.ok()) return limited;
  const int64_t newest = jobs_->view().LastSequence();
  if (absl::Status status = CheckCursor(request_.cursor(), newest, -1); !status.ok()) return status;
  const absl::Status opened =
      call_.gate().watches().Open(shared_from_this(), call_.caller().name, call_.protocol());
  if (!opened.ok()) return opened;
  filter_ = *std::move(filter);
  {
    absl::MutexLock lock(&mutex_);
    open_ = true;
    cursor_ = request_.cursor() == -1 ? newest : request_.cursor();
  }
  watches_->Add(shared_from_this());
  return absl::OkStatus();
}

void FleetFeed::Detach() {
  bool was_open = false;
  {
    absl::MutexLock lock(&mutex_);
    sink_ = nullptr;
    was_open = std::exchange(open_, false);
  }
  if (was_open) call_.gate().watches().Close(this);
  watches_->Remove(this);
}

void FleetFeed::OnEvents() {
  {
    absl::MutexLock lock(&mutex_);
    news_ = true;
    if (std::exchange(busy_, true)) return;
  }
  Advance();
}

void FleetFeed::OnSecond(const std::vector<std::shared_ptr<const JobSnapshot>>& changed) {
  {
    absl::MutexLock lock(&mutex_);
    for (const auto& each : changed) {
      if (each->job.has_progress() && filter_.TakesProgressOf(each->job)) {
        progress_[each->job.id()] = each;
      }
    }
    if (++idle_seconds_ >= kBookmarkSeconds) bookmark_ = true;
    if (progress_.empty() && !bookmark_) return;
    news_ = true;
    if (std::exchange(busy_, true)) return;
  }
  Advance();
}

void FleetFeed::OnStop() { End(absl::UnavailableError("the daemon stops; watch again later")); }

void FleetFeed::CheckAdmission() {
  if (absl::Status admitted = call_.StillAdmitted(); !admitted.ok()) End(admitted);
}

void FleetFeed::Advance() {
  for (int empty = 0;; ++empty) {
    if (absl::Status admitted = call_.StillAdmitted(); !admitted.ok()) return End(admitted);
    int64_t after = 0;
    {
      absl::MutexLock lock(&mutex_);
      if (sink_ == nullptr || finished_) return;
      if (empty == kMaxEmptyPages) break;
      news_ = false;
      after = cursor_;
    }
    absl::StatusOr<EventPage> page = EventPage();
    const absl::Status read = Guarded("WatchJobs", [&] {
      page = EventsAfter(watches_->log(), jobs_->view(), filter_.events, after, kMaxFleetEvents,
                         request_.skip_dropped() || request_.cursor() == 0);
    });
    absl::MutexLock lock(&mutex_);
    if (!read.ok() || !page.ok()) return FinishOnce(read.ok() ? page.status() : read);
    const bool at_end = page->at_end;
    if (Write(*std::move(page))) return;
    if (!at_end || news_) continue;
    busy_ = false;
    return;
  }
  watches_->Post([self = shared_from_this()] { self->Advance(); });
}

bool FleetFeed::Write(EventPage page) {
  if (sink_ == nullptr || finished_) return true;
  response_.Clear();
  size_t bytes = 0;
  cursor_ = page.cursor;
  for (JobEvent& event : page.events) {
    bytes += event.ByteSizeLong();
    if (!response_.events().empty() && bytes > kMaxFleetBytes) {
      // The rest is read again for the next message.
      cursor_ = response_.events().rbegin()->sequence();
      break;
    }
    *response_.add_events() = std::move(event);
  }
  AddProgress(response_);
  response_.set_cursor(cursor_);
  if (response_.events().empty() && response_.progress().empty() && !bookmark_) return false;
  idle_seconds_ = 0;
  bookmark_ = false;
  sink_->Write(response_);
  return true;
}

void FleetFeed::AddProgress(Response& next) {
  while (!progress_.empty() && next.progress_size() < kMaxProgress) {
    const auto first = progress_.begin();
    training::v1::JobProgress& progress = *next.add_progress();
    progress.set_job_id(first->first);
    progress.set_state(first->second->job.state());
    *progress.mutable_progress() = first->second->job.progress();
    progress.set_waiting_reason(first->second->job.waiting_reason());
    progress_.erase(first);
  }
}

void FleetFeed::End(const absl::Status& status) {
  absl::MutexLock lock(&mutex_);
  FinishOnce(status);
}

void FleetFeed::FinishOnce(const absl::Status& status) {
  if (sink_ == nullptr || finished_) return;
  finished_ = true;
  call_.Done("", status);
  sink_->Finish(status);
}

}  // namespace genesis
