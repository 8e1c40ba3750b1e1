#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "genesis/training/v1/event.pb.h"
#include "genesis/training/v1/job.pb.h"
#include "google/protobuf/map.h"
#include "server/store/sqlite.h"

// Reads of events from jobs.db, on any connection. Each but ReadAllEvents runs one statement, so it
// sees one snapshot. Failure: the store's status.
namespace genesis {

using Labels = google::protobuf::Map<std::string, std::string>;

// Returns the name of the field that is set in JobEvent.what, such as "state_changed"; "" if none.
std::string EventKind(const training::v1::JobEvent& event);

// Returns WebhookPayload.type of the event.
std::string EventType(const training::v1::JobEvent& event);

// Parses an event's record. An event with an explanation replaces a record that cannot be parsed.
training::v1::JobEvent ParseEvent(const std::string& record, int64_t sequence);

// The filter of a list of events. Empty strings and lists match all events.
struct EventQuery {
  std::string job_id = {};
  std::string owner = {};
  std::map<std::string, std::string> labels = {};  // An empty value matches any value.
  std::vector<std::string> kinds = {};
  std::vector<training::v1::JobState> states = {};  // States after the event.
  std::optional<absl::Time> since = {};
};

// Returns true if the event matches, by the rules of ReadEvents. `labels` are the labels of its job
// after the event.
bool Matches(const EventQuery& query, const training::v1::JobEvent& event, const Labels& labels);

struct EventPage {
  std::vector<training::v1::JobEvent> events = {};  // Oldest first.
  int64_t cursor = 0;                               // All events up to this one were examined.
  bool at_end = false;                              // There are no events after `cursor`.
};
// Returns at most `limit` matching events after `after`. Examines at most 10,000 events, so a page
// may be empty before the end.
absl::StatusOr<EventPage> ReadEvents(Database& database, const EventQuery& query, int64_t after,
                                     int64_t limit);

// Returns all matching events.
absl::StatusOr<std::vector<training::v1::JobEvent>> ReadAllEvents(Database& database,
                                                                  const EventQuery& query);

// Returns the last sequence number of all jobs, including deleted ones; 0 before the first event.
absl::StatusOr<int64_t> ReadLastSequence(Database& database);

// Returns the newest sequence number up to which events of the query may be missing because a job
// had too many of a kind; 0 if none is missing. Labels, states and `since` do not count.
absl::StatusOr<int64_t> ReadDroppedThrough(Database& database, const EventQuery& query);

// Returns the kept log lines of a job as events, oldest first.
absl::StatusOr<std::vector<training::v1::JobEvent>> ReadLogLines(Database& database,
                                                                 const std::string& job_id);

}  // namespace genesis
