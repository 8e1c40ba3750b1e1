#pragma once

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "genesis/training/v1/training_service.pb.h"
#include "server/ledger/job_view.h"
#include "server/store/event_reads.h"

namespace genesis {

// The filter of WatchJobs and ListEvents.
struct ParsedFilter {
  EventQuery events;
  bool progress = true;  // Progress was requested, too.

  // Returns true if the progress of the job was requested.
  bool TakesProgressOf(const training::v1::Job& job) const;
};

// Reads and checks a filter. `sends_progress`: the method accepts the kind "progress". Returns
// INVALID_ARGUMENT with all faults.
absl::StatusOr<ParsedFilter> ReadFilter(const training::v1::EventFilter& filter,
                                        bool sends_progress);

// Checks a cursor of WatchJob, WatchJobs or ListEvents against the newest event. `least`: -1 if the
// method accepts -1, for only new events; otherwise 0. Returns INVALID_ARGUMENT for a cursor below
// `least` or above `newest`.
absl::Status CheckCursor(int64_t cursor, int64_t newest, int64_t least);

// Same as JobView::EventsAfter, but reads from memory if the log has the events.
absl::StatusOr<EventPage> EventsAfter(const EventLog& log, const JobView& view,
                                      const EventQuery& query, int64_t cursor, int64_t limit,
                                      bool skip_dropped);

}  // namespace genesis
