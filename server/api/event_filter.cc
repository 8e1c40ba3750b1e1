#include "server/api/event_filter.h"

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/text/field_error.h"

namespace genesis {
namespace {

constexpr int kMaxTerms = 16;
constexpr size_t kMaxTermBytes = 255;  // No label, owner or job ID is longer.
constexpr char kProgress[] = "progress";

std::vector<std::string> Kinds() {
  std::vector<std::string> kinds;
  const auto* what = training::v1::JobEvent::descriptor()->FindOneofByName("what");
  for (int i = 0; i < what->field_count(); ++i) {
    if (what->field(i)->name() != "log_line") kinds.push_back(what->field(i)->name());
  }
  return kinds;
}

void CheckCount(const char* field, int count, std::vector<FieldError>& faults) {
  if (count <= kMaxTerms) return;
  faults.push_back({field, absl::StrCat(count, " entries"), absl::StrCat("at most ", kMaxTerms)});
}

void CheckText(const std::string& field, const std::string& text, std::vector<FieldError>& faults) {
  if (text.size() <= kMaxTermBytes) return;
  faults.push_back({field, absl::StrCat(text.size(), " bytes"),
                    absl::StrCat("at most ", kMaxTermBytes, " bytes")});
}

}  // namespace

bool ParsedFilter::TakesProgressOf(const training::v1::Job& job) const {
  if (!progress) return false;
  EventQuery query = events;
  query.kinds.clear();
  training::v1::JobEvent now;
  now.set_job_id(job.id());
  now.set_owner(job.owner());
  now.set_state(job.state());
  return Matches(query, now, job.labels());
}

absl::StatusOr<ParsedFilter> ReadFilter(const training::v1::EventFilter& filter,
                                        bool sends_progress) {
  std::vector<FieldError> faults;
  CheckText("filter.job_id", filter.job_id(), faults);
  CheckText("filter.owner", filter.owner(), faults);
  CheckCount("filter.labels", static_cast<int>(filter.labels_size()), faults);
  CheckCount("filter.kinds", filter.kinds_size(), faults);
  CheckCount("filter.states", filter.states_size(), faults);
  if (!faults.empty()) return ToStatus(faults);
  ParsedFilter read;
  read.events.job_id = filter.job_id();
  read.events.owner = filter.owner();
  for (const auto& [key, value] : filter.labels()) {
    if (key.empty()) faults.push_back({"filter.labels", "an empty key", "keys of 1 to 255 bytes"});
    CheckText("filter.labels", key, faults);
    CheckText("filter.labels", value, faults);
    read.events.labels[key] = value;
  }
  static const auto& known = *new std::vector<std::string>(Kinds());
  read.progress = sends_progress && filter.kinds().empty();
  for (const std::string& kind : filter.kinds()) {
    if (sends_progress && kind == kProgress) {
      read.progress = true;
    } else if (std::find(known.begin(), known.end(), kind) == known.end()) {
      faults.push_back({"filter.kinds", QuoteValue(kind),
                        absl::StrCat(absl::StrJoin(known, ", "),
                                     sends_progress ? ", progress" : "; WatchJobs has progress")});
    } else {
      read.events.kinds.push_back(kind);
    }
  }
  // No event has this kind, so a filter for progress alone matches no event.
  if (read.progress && read.events.kinds.empty() && !filter.kinds().empty()) {
    read.events.kinds.emplace_back(kProgress);
  }
  for (const int state : filter.states()) {
    if (state == training::v1::JOB_STATE_UNSPECIFIED) {
      faults.push_back({"filter.states", "UNSPECIFIED", "states of a job, such as FAILED"});
    }
    read.events.states.push_back(static_cast<training::v1::JobState>(state));
  }
  if (!faults.empty()) return ToStatus(faults);
  return read;
}

absl::Status CheckCursor(int64_t cursor, int64_t newest, int64_t least) {
  if (cursor >= least && cursor <= newest) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("cursor is ", cursor, "; accepted: 0 for all events that are kept, ",
                   least < 0 ? "-1 for none but those to come, " : "",
                   "or the cursor of an earlier call, at most ", newest));
}

absl::StatusOr<EventPage> EventsAfter(const EventLog& log, const JobView& view,
                                      const EventQuery& query, int64_t cursor, int64_t limit,
                                      bool skip_dropped) {
  constexpr size_t kExamined = 1024;
  std::optional<std::vector<EventLog::Entry>> recent = log.After(cursor, kExamined);
  if (!recent) return view.EventsAfter(query, cursor, limit, skip_dropped);
  EventPage page{.events = {}, .cursor = cursor, .at_end = recent->size() < kExamined};
  for (const EventLog::Entry& each : *recent) {
    if (static_cast<int64_t>(page.events.size()) == limit) {
      page.at_end = false;
      break;
    }
    page.cursor = each.event->sequence();
    if (Matches(query, *each.event, *each.labels)) page.events.push_back(*each.event);
  }
  return page;
}

}  // namespace genesis
