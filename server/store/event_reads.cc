#include "server/store/event_reads.h"

#include <google/protobuf/util/time_util.h>

#include <algorithm>
#include <iterator>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/text/enum_names.h"
#include "base/timestamp.h"
#include "server/store/conditions.h"

namespace genesis {
namespace {

using google::protobuf::util::TimeUtil;
using training::v1::JobEvent;

// Maximum events that one query examines, about 10 ms.
constexpr int64_t kMaxExamined = 10000;

template <typename Value>
bool Includes(const std::vector<Value>& accepted, const Value& value) {
  return accepted.empty() || std::find(accepted.begin(), accepted.end(), value) != accepted.end();
}

std::string OneOf(const std::string& column, const std::vector<std::string>& accepted,
                  Conditions& conditions) {
  std::vector<std::string> parameters;
  for (const std::string& each : accepted) parameters.push_back(conditions.Parameter(each));
  return absl::StrCat(column, " IN (", absl::StrJoin(parameters, ", "), ")");
}

void AddFilters(const EventQuery& query, Conditions& conditions) {
  if (!query.owner.empty()) {
    conditions.Add(absl::StrCat("e.owner = ", conditions.Parameter(query.owner)));
  }
  if (!query.kinds.empty()) conditions.Add(OneOf("e.kind", query.kinds, conditions));
  if (!query.states.empty()) {
    std::vector<std::string> names;
    for (const training::v1::JobState state : query.states) names.push_back(ShortEnumName(state));
    conditions.Add(OneOf("e.state", names, conditions));
  }
  for (const auto& [key, value] : query.labels) {
    std::string has = absl::StrCat("EXISTS (SELECT 1 FROM json_each(e.labels) l WHERE l.key = ",
                                   conditions.Parameter(key));
    if (!value.empty()) absl::StrAppend(&has, " AND l.value = ", conditions.Parameter(value));
    conditions.Add(has + ")");
  }
}

absl::StatusOr<int64_t> ReadNumber(Statement& query) {
  const absl::StatusOr<bool> row = query.Step();
  if (!row.ok()) return row.status();
  return *row ? query.Int(0) : 0;
}

}  // namespace

JobEvent ParseEvent(const std::string& record, int64_t sequence) {
  JobEvent event;
  if (!event.ParseFromString(record)) {
    event.Clear();
    event.set_updated("the store's record of this event cannot be read");
  }
  event.set_sequence(sequence);
  return event;
}

std::string EventKind(const JobEvent& event) {
  const auto* field = JobEvent::descriptor()->FindFieldByNumber(event.what_case());
  return field != nullptr ? field->name() : "";
}

std::string EventType(const JobEvent& event) {
  return absl::StrCat("job.", event.has_state_changed()
                                  ? absl::AsciiStrToLower(ShortEnumName(event.state_changed().to()))
                                  : EventKind(event));
}

bool Matches(const EventQuery& query, const JobEvent& event, const Labels& labels) {
  if (!query.job_id.empty() && query.job_id != event.job_id()) return false;
  if (!query.owner.empty() && query.owner != event.owner()) return false;
  if (!Includes(query.kinds, EventKind(event)) || !Includes(query.states, event.state())) {
    return false;
  }
  if (query.since && FromTimestamp(event.time()) < *query.since) return false;
  return std::all_of(query.labels.begin(), query.labels.end(), [&](const auto& asked) {
    const auto found = labels.find(asked.first);
    return found != labels.end() && (asked.second.empty() || asked.second == found->second);
  });
}

absl::StatusOr<EventPage> ReadEvents(Database& database, const EventQuery& query, int64_t after,
                                     int64_t limit) {
  Conditions conditions;
  const std::string first = conditions.Parameter(after);
  const std::string examined = conditions.Parameter(kMaxExamined);
  const std::string of_job =
      query.job_id.empty() ? "" : absl::StrCat("AND job_id = ", conditions.Parameter(query.job_id));
  AddFilters(query, conditions);
  // Rows that do not match are returned without their event, so that the last one is known.
  const std::string matches = conditions.IsEmpty() ? "1" : conditions.All();
  absl::StatusOr<Statement> found = database.Prepare(
      absl::StrCat("SELECT e.sequence, CASE WHEN ", matches,
                   " THEN e.event END FROM (SELECT * FROM events WHERE sequence > ", first, " ",
                   of_job, " ORDER BY sequence LIMIT ", examined, ") e"));
  if (!found.ok()) return found.status();
  conditions.BindAll(*found);
  EventPage page{.events = {}, .cursor = after};
  for (int64_t rows = 0; static_cast<int64_t>(page.events.size()) < limit; ++rows) {
    const absl::StatusOr<bool> row = found->Step();
    if (!row.ok()) return row.status();
    page.at_end = !*row && rows < kMaxExamined;
    if (!*row) break;
    page.cursor = found->Int(0);
    if (found->IsNull(1)) continue;
    JobEvent event = ParseEvent(found->Text(1), page.cursor);
    if (query.since && FromTimestamp(event.time()) < *query.since) continue;
    page.events.push_back(std::move(event));
  }
  return page;
}

absl::StatusOr<std::vector<JobEvent>> ReadAllEvents(Database& database, const EventQuery& query) {
  std::vector<JobEvent> events;
  for (EventPage page; !page.at_end;) {
    absl::StatusOr<EventPage> next = ReadEvents(database, query, page.cursor, kMaxExamined);
    if (!next.ok()) return next.status();
    page = *std::move(next);
    std::move(page.events.begin(), page.events.end(), std::back_inserter(events));
  }
  return events;
}

absl::StatusOr<int64_t> ReadLastSequence(Database& database) {
  absl::StatusOr<Statement> query =
      database.Prepare("SELECT seq FROM sqlite_sequence WHERE name = 'events'");
  return query.ok() ? ReadNumber(*query) : query.status();
}

absl::StatusOr<int64_t> ReadDroppedThrough(Database& database, const EventQuery& query) {
  Conditions conditions;
  if (!query.job_id.empty()) {
    conditions.Add(absl::StrCat("d.job_id = ", conditions.Parameter(query.job_id)));
  }
  // Deletions have no job, and rows of an older schema no kind.
  if (!query.owner.empty()) {
    conditions.Add(absl::StrCat(
        "(d.job_id = '' OR EXISTS (SELECT 1 FROM jobs j WHERE j.id = d.job_id AND j.owner = ",
        conditions.Parameter(query.owner), "))"));
  }
  if (!query.kinds.empty()) {
    std::vector<std::string> kinds = query.kinds;
    kinds.emplace_back();
    conditions.Add(OneOf("d.kind", kinds, conditions));
  }
  absl::StatusOr<Statement> found =
      database.Prepare(absl::StrCat("SELECT max(d.sequence) FROM dropped_events d",
                                    conditions.IsEmpty() ? "" : " WHERE ", conditions.All()));
  if (!found.ok()) return found.status();
  conditions.BindAll(*found);
  return ReadNumber(*found);
}

absl::StatusOr<std::vector<JobEvent>> ReadLogLines(Database& database, const std::string& job_id) {
  absl::StatusOr<Statement> query =
      database.Prepare("SELECT time, line FROM log_lines WHERE job_id = ?1 ORDER BY number");
  if (!query.ok()) return query.status();
  query->Bind(1, job_id);
  std::vector<JobEvent> lines;
  for (;;) {
    const absl::StatusOr<bool> row = query->Step();
    if (!row.ok()) return row.status();
    if (!*row) return lines;
    JobEvent& line = lines.emplace_back();
    if (!TimeUtil::FromString(query->Text(0), line.mutable_time())) line.clear_time();
    line.set_job_id(job_id);
    line.set_log_line(query->Text(1));
  }
}

}  // namespace genesis
