#include "server/api/event_watches.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/steady_time.h"

namespace genesis {
namespace {

constexpr int kMaxWaits = 2048;
constexpr int kMaxWaitsOfCaller = 512;

}  // namespace

// One open call of Wait. Keeps itself alive until the call is complete.
class EventWatches::Waiting final : public EventWatcher,
                                    public std::enable_shared_from_this<Waiting> {
 public:
  Waiting(EventWatches* watches, const Caller& caller, absl::Duration timeout, Answer answer)
      : watches_(watches),
        caller_(caller.name),
        check_(caller.check),
        deadline_(SteadyNow() + timeout),
        answer_(std::move(answer)) {}

  void Begin() {
    {
      absl::MutexLock lock(&mutex_);
      self_ = shared_from_this();
    }
    watches_->Add(shared_from_this());
    Try(false);
  }

  void OnEvents() override { Try(false); }
  void OnSecond(const std::vector<std::shared_ptr<const JobSnapshot>>&) override { Try(false); }
  void OnStop() override { Try(true); }

 private:
  void Try(bool stopping) {
    std::shared_ptr<Waiting> self;
    {
      absl::MutexLock lock(&mutex_);
      if (self_ == nullptr) return;
      if (!HasAnswered(stopping)) return;
      self = std::move(self_);
      self_ = nullptr;
    }
    watches_->Remove(this);
    absl::MutexLock lock(&watches_->mutex_);
    --watches_->waits_;
    const auto of_caller = watches_->waits_of_.find(caller_);
    if (--of_caller->second == 0) watches_->waits_of_.erase(of_caller);
  }

  bool HasAnswered(bool stopping) {
    const absl::Status wanted = check_ != nullptr ? check_() : absl::OkStatus();
    if (!wanted.ok()) {
      answer_.refuse(wanted);
      return true;
    }
    const bool last = stopping || SteadyNow() >= deadline_;
    return answer_.attempt(last) || last;
  }

  EventWatches* const watches_;
  const std::string caller_;
  const std::function<absl::Status()> check_;
  const absl::Time deadline_;
  absl::Mutex mutex_;  // Held during `answer_`, so that it runs once.
  const Answer answer_;
  std::shared_ptr<Waiting> self_
      ABSL_GUARDED_BY(mutex_);  // Null before Begin and after completion.
};

EventWatches::EventWatches(EventLog* log, const JobView* view) : log_(log), view_(view) {
  log_->Listen([this] { Wake(); });
}

EventWatches::~EventWatches() { log_->Listen(nullptr); }

absl::Status EventWatches::Wait(const Caller& caller, absl::Duration timeout, Answer answer) {
  {
    absl::MutexLock lock(&mutex_);
    int& of_caller = waits_of_[caller.name];
    if (waits_ >= kMaxWaits || of_caller >= kMaxWaitsOfCaller) {
      if (of_caller == 0) waits_of_.erase(caller.name);
      return absl::ResourceExhaustedError(absl::StrCat(
          waits_, " calls with wait_seconds are open; accepted: at most ", kMaxWaitsOfCaller,
          " of one caller and ", kMaxWaits, " in all; call without wait_seconds"));
    }
    ++of_caller;
    ++waits_;
  }
  std::make_shared<Waiting>(this, caller, timeout, std::move(answer))->Begin();
  return absl::OkStatus();
}

void EventWatches::Add(const std::shared_ptr<EventWatcher>& watcher) {
  bool stopped = false;
  {
    absl::MutexLock lock(&mutex_);
    stopped = stopped_;
    if (!stopped) watchers_[watcher.get()] = watcher;
  }
  if (stopped) watcher->OnStop();
}

void EventWatches::Remove(const EventWatcher* watcher) {
  absl::MutexLock lock(&mutex_);
  watchers_.erase(watcher);
}

// Posts a task unless one is queued, which also reads events that arrive before it runs.
void EventWatches::Wake() {
  if (woken_.exchange(true)) return;
  threads_.Post([this] {
    woken_ = false;
    for (const auto& watcher : Current()) watcher->OnEvents();
  });
}

void EventWatches::Tend() {
  const absl::Time now = SteadyNow();
  if (now < next_second_) return;
  next_second_ = now + absl::Seconds(1);
  threads_.Post([this] { Second(); });
}

void EventWatches::Second() {
  const std::vector<std::shared_ptr<EventWatcher>> watchers = Current();
  if (watchers.empty()) {
    seen_version_ = -1;
    return;
  }
  std::vector<std::shared_ptr<const JobSnapshot>> changed;
  int64_t newest = seen_version_;
  for (JobView::Shown& each : view_->InMemory()) {
    newest = std::max(newest, each.snapshot->version);
    if (each.snapshot->version > seen_version_) changed.push_back(std::move(each.snapshot));
  }
  if (seen_version_ < 0) changed.clear();  // The first second with a watcher.
  seen_version_ = newest;
  for (const auto& watcher : watchers) watcher->OnSecond(changed);
}

void EventWatches::Stop() {
  {
    absl::MutexLock lock(&mutex_);
    stopped_ = true;
  }
  for (const auto& watcher : Current()) watcher->OnStop();
}

std::vector<std::shared_ptr<EventWatcher>> EventWatches::Current() const {
  std::vector<std::shared_ptr<EventWatcher>> current;
  absl::MutexLock lock(&mutex_);
  for (const auto& [key, each] : watchers_) {
    if (auto watcher = each.lock()) current.push_back(std::move(watcher));
  }
  return current;
}

}  // namespace genesis
