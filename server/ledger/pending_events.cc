#include "server/ledger/pending_events.h"

#include <algorithm>
#include <set>
#include <utility>

#include "server/store/event_reads.h"

namespace genesis {
namespace {

constexpr absl::Duration kLogDelay = absl::Seconds(1);
// More pending lines than this are written immediately, to bound memory and the transaction.
constexpr size_t kMaxLines = 256;

}  // namespace

void PendingEvents::Add(training::v1::JobEvent event, const Labels& labels) {
  all_.push_back({std::make_shared<training::v1::JobEvent>(std::move(event)),
                  std::make_shared<const Labels>(labels)});
}

void PendingEvents::AddLine(training::v1::JobEvent line, absl::Time now) {
  Add(std::move(line), Labels());
  due_ = std::min(due_, now + kLogDelay);
}

bool PendingEvents::full() const { return all_.size() > kMaxLines; }

void PendingEvents::Drop(const std::string& job_id) {
  const auto is_of_job = [&](const auto& each) { return each.event->job_id() == job_id; };
  const auto settled_end = all_.begin() + static_cast<std::ptrdiff_t>(settled_);
  settled_ -= static_cast<size_t>(std::count_if(all_.begin(), settled_end, is_of_job));
  std::erase_if(all_, is_of_job);
}

void PendingEvents::AppendMatching(const EventQuery& query,
                                   std::vector<training::v1::JobEvent>& events) const {
  for (const Pending& each : all_) {
    if (Matches(query, *each.event, *each.labels)) events.push_back(*each.event);
  }
}

absl::Status PendingEvents::Write(JobStore& store) {
  std::set<std::pair<std::string, std::string>> written;  // Jobs and kinds.
  for (const auto& [event, labels] : all_) {
    if (event->has_log_line()) {
      absl::Status status = store.AddLogLine(*event);
      if (!status.ok()) return status;
    } else {
      const absl::StatusOr<int64_t> sequence = store.AddEvent(*event, *labels);
      if (!sequence.ok()) return sequence.status();
      event->set_sequence(*sequence);
    }
    written.emplace(event->job_id(), EventKind(*event));
  }
  for (const auto& [id, kind] : written) {
    absl::Status status =
        kind == "log_line" ? store.PruneLogLines(id) : store.PruneEvents(id, kind);
    if (!status.ok()) return status;
  }
  return absl::OkStatus();
}

std::vector<EventLog::Entry> PendingEvents::Take() {
  std::vector<EventLog::Entry> taken;
  for (Pending& each : all_) taken.push_back({std::move(each.event), std::move(each.labels)});
  all_.clear();
  settled_ = 0;
  due_ = absl::InfiniteFuture();
  return taken;
}

void PendingEvents::Undo() {
  all_.resize(settled_);
  if (all_.empty()) due_ = absl::InfiniteFuture();
}

}  // namespace genesis
