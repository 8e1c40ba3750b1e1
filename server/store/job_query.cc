// ReadJobs of store_reads.h, the query of ListJobs, as one SQL statement.
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/text/enum_names.h"
#include "server/store/conditions.h"
#include "server/store/store_reads.h"

namespace genesis {
namespace {

void AddFilters(const JobQuery& query, Conditions& conditions) {
  if (!query.states.empty()) {
    std::vector<std::string> names;
    for (const training::v1::JobState state : query.states) {
      names.push_back(conditions.Parameter(ShortEnumName(state)));
    }
    conditions.Add(absl::StrCat("j.state IN (", absl::StrJoin(names, ", "), ")"));
  }
  if (!query.owner.empty()) {
    conditions.Add(absl::StrCat("j.owner = ", conditions.Parameter(query.owner)));
  }
  if (!query.id_prefix.empty()) {
    const std::string prefix = conditions.Parameter(query.id_prefix);
    conditions.Add(absl::StrCat("substr(j.id, 1, length(", prefix, ")) = ", prefix));
  }
  for (const auto& [key, value] : query.labels) {
    // Scan the labels once instead of looking them up for each job.
    std::string has = absl::StrCat("j.ordinal IN (SELECT ordinal FROM job_labels WHERE key = ",
                                   conditions.Parameter(key));
    if (!value.empty()) absl::StrAppend(&has, " AND value = ", conditions.Parameter(value));
    conditions.Add(has + ")");
  }
}

void AddPlace(const JobQuery& query, Conditions& conditions) {
  if (!query.after) return;
  const std::string ordinal = conditions.Parameter(query.after->ordinal);
  switch (query.order) {
    case training::v1::JOB_ORDER_OLDEST_FIRST:
      return conditions.Add(absl::StrCat("j.ordinal > ", ordinal));
    case training::v1::JOB_ORDER_PRIORITY: {
      const std::string priority = conditions.Parameter(query.after->priority);
      return conditions.Add(absl::StrCat("j.priority <= ", priority, " AND (j.priority < ",
                                         priority, " OR j.ordinal > ", ordinal, ")"));
    }
    default:
      return conditions.Add(absl::StrCat("j.ordinal < ", ordinal));
  }
}

const char* OrderBy(training::v1::JobOrder order) {
  switch (order) {
    case training::v1::JOB_ORDER_OLDEST_FIRST:
      return "j.ordinal";
    case training::v1::JOB_ORDER_PRIORITY:
      return "j.priority DESC, j.ordinal";
    default:
      return "j.ordinal DESC";
  }
}

}  // namespace

absl::StatusOr<std::vector<StoredJob>> ReadJobs(Database& database, const JobQuery& query) {
  Conditions conditions;
  AddFilters(query, conditions);
  AddPlace(query, conditions);
  const std::string limit = conditions.Parameter(query.limit);
  // There is no index on owner, state or label. Rows of `jobs` are small, and a scan of 10,000
  // takes about a millisecond, while each index would slow down every write.
  absl::StatusOr<Statement> statement = database.Prepare(
      absl::StrCat("SELECT j.ordinal, j.id, r.job FROM jobs j CROSS JOIN job_records r ON "
                   "r.ordinal = j.ordinal ",
                   conditions.IsEmpty() ? "" : "WHERE ", conditions.All(), " ORDER BY ",
                   OrderBy(query.order), " LIMIT ", limit));
  if (!statement.ok()) return statement.status();
  conditions.BindAll(*statement);
  std::vector<StoredJob> jobs;
  for (;;) {
    const absl::StatusOr<bool> row = statement->Step();
    if (!row.ok()) return row.status();
    if (!*row) return jobs;
    StoredJob& each = jobs.emplace_back();
    each.ordinal = statement->Int(0);
    each.job = ParseJob(statement->Text(1), statement->Text(2));
  }
}

}  // namespace genesis
