#include "server/ledger/event_log.h"

#include <algorithm>
#include <utility>

namespace genesis {
namespace {

constexpr size_t kMaxEntries = 4096;

}  // namespace

void EventLog::BeginAfter(int64_t sequence) {
  absl::MutexLock lock(&mutex_);
  entries_.clear();
  dropped_ = sequence;
  newest_ = sequence;
}

void EventLog::Append(std::vector<Entry> entries) {
  if (entries.empty()) return;
  absl::MutexLock lock(&mutex_);
  for (Entry& entry : entries) entries_.push_back(std::move(entry));
  newest_ = entries_.back().event->sequence();
  while (entries_.size() > kMaxEntries) {
    dropped_ = entries_.front().event->sequence();
    entries_.pop_front();
  }
  if (listener_ != nullptr) listener_();
}

void EventLog::Listen(std::function<void()> listener) {
  absl::MutexLock lock(&mutex_);
  listener_ = std::move(listener);
}

int64_t EventLog::newest_stored() const {
  absl::MutexLock lock(&mutex_);
  return dropped_;
}

std::optional<std::vector<EventLog::Entry>> EventLog::After(int64_t sequence, size_t limit) const {
  if (sequence >= newest_) return std::vector<Entry>();
  absl::MutexLock lock(&mutex_);
  if (sequence < dropped_) return std::nullopt;
  const auto first = std::upper_bound(
      entries_.begin(), entries_.end(), sequence,
      [](int64_t value, const Entry& entry) { return value < entry.event->sequence(); });
  const auto count = std::min<size_t>(limit, static_cast<size_t>(entries_.end() - first));
  return std::vector<Entry>(first, first + static_cast<std::ptrdiff_t>(count));
}

}  // namespace genesis
