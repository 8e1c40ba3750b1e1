// Methods for the metrics of jobs over time.
#include <algorithm>
#include <utility>

#include "base/timestamp.h"
#include "server/api/page.h"
#include "server/api/request_times.h"
#include "server/api/training_api.h"
#include "server/store/history_store.h"

namespace genesis {

void TrainingApi::GetHistory(const Caller& caller, const training::v1::GetHistoryRequest& request,
                             const Callback<training::v1::GetHistoryResponse>& callback) {
  const absl::StatusOr<int> size = PageSize(request.page_size());
  if (!size.ok()) return callback(size.status());
  HistoryStore::Query query;
  query.job_id = request.job_id();
  query.limit = *size + 1;
  if (request.has_since()) {
    const absl::StatusOr<absl::Time> since = SinceOf(request.since());
    if (!since.ok()) return callback(since.status());
    query.since = *since;
  }
  const absl::Status sees = parts_.jobs->queries().CheckSees(caller, request.job_id());
  if (!sees.ok()) return callback(sees);
  // Exclude rows of an earlier job with the same ID that has been deleted.
  const auto job = parts_.jobs->queries().Get(caller, request.job_id());
  if (job.ok()) query.since = std::max(query.since, FromTimestamp(job->create_time()));
  if (!request.page_token().empty()) {
    const auto keys = ReadPageKeys<2>(request);
    if (!keys.ok()) return callback(keys.status());
    query.after = {.milliseconds = (*keys)[0], .number = (*keys)[1]};
  }
  absl::StatusOr<std::vector<HistoryStore::Row>> rows = parts_.history->Read(query);
  if (!rows.ok()) return callback(rows.status());
  training::v1::GetHistoryResponse response;
  if (static_cast<int>(rows->size()) > *size) {
    rows->pop_back();
    const HistoryStore::Query::Place& last = rows->back().place;
    response.set_next_page_token(MakePageToken(request, PlaceOf({last.milliseconds, last.number})));
  }
  for (HistoryStore::Row& each : *rows) *response.add_rows() = std::move(each.row);
  callback(response);
}

}  // namespace genesis
