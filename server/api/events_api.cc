// ListEvents.
#include <algorithm>
#include <memory>
#include <utility>
#include <vector>

#include "server/api/event_filter.h"
#include "server/api/event_watches.h"
#include "server/api/page.h"
#include "server/api/request_times.h"
#include "server/api/training_api.h"

namespace genesis {
namespace {

using training::v1::ListEventsRequest;
using training::v1::ListEventsResponse;

// Reads up to kMaxPages pages, each of which examines a bounded number of events, until one has an
// event or there are no more. The next call continues after them.
absl::StatusOr<ListEventsResponse> ReadPage(const EventLog& log, const JobView& view,
                                            const EventQuery& query, int64_t cursor, int64_t limit,
                                            bool skip_dropped) {
  constexpr int kMaxPages = 4;
  constexpr size_t kMaxPageBytes = size_t{2} << 20U;
  absl::StatusOr<EventPage> page = EventPage{.events = {}, .cursor = cursor, .at_end = false};
  for (int i = 0; i < kMaxPages && page->events.empty() && !page->at_end; ++i) {
    page = EventsAfter(log, view, query, page->cursor, limit, skip_dropped);
    if (!page.ok()) return page.status();
  }
  ListEventsResponse response;
  response.set_cursor(page->cursor);
  response.set_more(!page->at_end);
  size_t bytes = 0;
  for (training::v1::JobEvent& event : page->events) {
    bytes += event.ByteSizeLong();
    if (!response.events().empty() && bytes > kMaxPageBytes) {
      response.set_cursor(response.events().rbegin()->sequence());
      response.set_more(true);
      break;
    }
    *response.add_events() = std::move(event);
  }
  return response;
}

}  // namespace

void TrainingApi::ListEvents(const Caller& caller, const ListEventsRequest& request,
                             const Callback<ListEventsResponse>& callback) {
  absl::StatusOr<ParsedFilter> filter = ReadFilter(request.filter(), /*sends_progress=*/false);
  if (!filter.ok()) return callback(filter.status());
  const absl::Status limited = parts_.jobs->queries().LimitOwner(caller, filter->events.owner);
  if (!limited.ok()) return callback(limited);
  const absl::StatusOr<int> size = PageSize(request.page_size());
  if (!size.ok()) return callback(size.status());
  const absl::StatusOr<absl::Duration> wait = WaitOf(request.wait_seconds());
  if (!wait.ok()) return callback(wait.status());
  const JobView& view = parts_.jobs->view();
  const absl::Status status = CheckCursor(request.cursor(), view.LastSequence(), 0);
  if (!status.ok()) return callback(status);
  if (request.has_since()) {
    const absl::StatusOr<absl::Time> since = SinceOf(request.since());
    if (!since.ok()) return callback(since.status());
    filter->events.since = *since;
  }
  const bool skip_dropped = request.skip_dropped() || request.cursor() == 0;
  const auto cursor = std::make_shared<int64_t>(request.cursor());
  const auto answer = [&view, &log = parts_.watches->log(), query = filter->events, cursor,
                       limit = *size, skip_dropped, callback](bool last) {
    const absl::StatusOr<ListEventsResponse> page =
        ReadPage(log, view, query, *cursor, limit, skip_dropped);
    if (page.ok() && page->events().empty() && !page->more() && !last) {
      *cursor = page->cursor();
      return false;
    }
    callback(page);
    return true;
  };
  if (answer(*wait == absl::ZeroDuration())) return;
  const absl::Status waiting = parts_.watches->Wait(caller, *wait, {answer, callback});
  if (!waiting.ok()) callback(waiting);
}

}  // namespace genesis
