#include "server/store/sweep_rows.h"

#include <numeric>

#include "absl/strings/str_cat.h"

namespace genesis {
namespace {

using training::v1::Sweep;
using training::v1::Trial;

constexpr int64_t kMaxEnded = 1000;

// Begins each query that ReadRows runs.
constexpr char kSweepColumns[] = "SELECT ordinal, cursor, sweep FROM sweeps ";

absl::Status UnreadableSweep(const std::string& what) {
  return absl::DataLossError(absl::StrCat("the store's record of ", what,
                                          " cannot be read; restore jobs.db from a backup"));
}

absl::StatusOr<std::vector<StoredSweep>> ReadRows(Statement& query) {
  std::vector<StoredSweep> sweeps;
  for (;;) {
    const absl::StatusOr<bool> row = query.Step();
    if (!row.ok()) return row.status();
    if (!*row) return sweeps;
    StoredSweep& each = sweeps.emplace_back();
    each.ordinal = query.Int(0);
    each.cursor = query.Int(1);
    if (!each.sweep.ParseFromString(query.Text(2))) {
      return UnreadableSweep(absl::StrCat("sweep ", each.ordinal));
    }
  }
}

absl::Status AddTrials(Database& database, StoredSweep& stored) {
  absl::StatusOr<Statement> query =
      database.Prepare("SELECT trial FROM sweep_trials WHERE sweep = ?1 ORDER BY number");
  if (!query.ok()) return query.status();
  query->Bind(1, stored.ordinal);
  for (;;) {
    const absl::StatusOr<bool> row = query->Step();
    if (!row.ok()) return row.status();
    if (!*row) return absl::OkStatus();
    if (!stored.sweep.add_trials()->ParseFromString(query->Text(0))) {
      return UnreadableSweep(absl::StrCat("a trial of sweep ", stored.sweep.id()));
    }
  }
}

std::string RecordOf(const Sweep& sweep) {
  Sweep record = sweep;
  record.clear_trials();
  return record.SerializeAsString();
}

absl::Status PutTrials(Database& database, const StoredSweep& stored,
                       const std::vector<int>& trials) {
  absl::StatusOr<Statement> put = database.Prepare(
      "INSERT INTO sweep_trials(sweep, number, trial) VALUES(?1, ?2, ?3) "
      "ON CONFLICT(sweep, number) DO UPDATE SET trial = ?3");
  if (!put.ok()) return put.status();
  for (const int number : trials) {
    absl::Status status = put->Bind(1, stored.ordinal)
                              .Bind(2, int64_t{number})
                              .BindBlob(3, stored.sweep.trials(number).SerializeAsString())
                              .Run();
    if (!status.ok()) return status;
  }
  return absl::OkStatus();
}

absl::Status PruneEnded(Database& database) {
  const std::string surplus = absl::StrCat(
      "(SELECT ordinal FROM sweeps WHERE ended = 1 ORDER BY ordinal DESC LIMIT -1 OFFSET ",
      kMaxEnded, ")");
  absl::Status status =
      database.Execute(absl::StrCat("DELETE FROM sweep_trials WHERE sweep IN ", surplus));
  return status.ok()
             ? database.Execute(absl::StrCat("DELETE FROM sweeps WHERE ordinal IN ", surplus))
             : status;
}

}  // namespace

absl::StatusOr<std::optional<StoredSweep>> ReadSweep(Database& database, const std::string& id) {
  absl::StatusOr<Statement> query = database.Prepare(absl::StrCat(kSweepColumns, "WHERE id = ?1"));
  if (!query.ok()) return query.status();
  query->Bind(1, id);
  absl::StatusOr<std::vector<StoredSweep>> rows = ReadRows(*query);
  if (!rows.ok()) return rows.status();
  if (rows->empty()) return std::nullopt;
  absl::Status status = AddTrials(database, rows->front());
  if (!status.ok()) return status;
  return std::move(rows->front());
}

absl::StatusOr<std::vector<StoredSweep>> ReadOpenSweeps(Database& database) {
  absl::StatusOr<Statement> query =
      database.Prepare(absl::StrCat(kSweepColumns, "WHERE ended = 0 ORDER BY ordinal"));
  if (!query.ok()) return query.status();
  absl::StatusOr<std::vector<StoredSweep>> sweeps = ReadRows(*query);
  if (!sweeps.ok()) return sweeps;
  for (StoredSweep& each : *sweeps) {
    if (absl::Status status = AddTrials(database, each); !status.ok()) return status;
  }
  return sweeps;
}

absl::StatusOr<std::vector<StoredSweep>> ReadSweeps(Database& database, const std::string& owner,
                                                    int64_t before, int64_t limit) {
  absl::StatusOr<Statement> query =
      database.Prepare(absl::StrCat(kSweepColumns,
                                    "WHERE (?1 = '' OR owner = ?1) AND (?2 = 0 OR ordinal < ?2) "
                                    "ORDER BY ordinal DESC LIMIT ?3"));
  if (!query.ok()) return query.status();
  query->Bind(1, owner).Bind(2, before).Bind(3, limit);
  return ReadRows(*query);
}

absl::StatusOr<int64_t> InsertSweep(Database& database, const StoredSweep& stored) {
  {
    absl::StatusOr<Statement> add = database.Prepare(
        "INSERT INTO sweeps(id, owner, ended, cursor, sweep) VALUES(?1, ?2, 0, ?3, ?4)");
    if (!add.ok()) return add.status();
    absl::Status status = add->Bind(1, stored.sweep.id())
                              .Bind(2, stored.sweep.owner())
                              .Bind(3, stored.cursor)
                              .BindBlob(4, RecordOf(stored.sweep))
                              .Run();
    if (!status.ok()) return status;
  }
  StoredSweep inserted = stored;
  inserted.ordinal = database.LastInsertId();
  std::vector<int> all(static_cast<size_t>(stored.sweep.trials_size()));
  std::iota(all.begin(), all.end(), 0);
  absl::Status status = PutTrials(database, inserted, all);
  if (status.ok()) status = PruneEnded(database);
  if (!status.ok()) return status;
  return inserted.ordinal;
}

absl::Status WriteSweep(Database& database, const StoredSweep& stored,
                        const std::vector<int>& trials) {
  absl::StatusOr<Statement> put =
      database.Prepare("UPDATE sweeps SET ended = ?2, cursor = ?3, sweep = ?4 WHERE ordinal = ?1");
  if (!put.ok()) return put.status();
  absl::Status status = put->Bind(1, stored.ordinal)
                            .Bind(2, int64_t{stored.sweep.has_end_time() ? 1 : 0})
                            .Bind(3, stored.cursor)
                            .BindBlob(4, RecordOf(stored.sweep))
                            .Run();
  return status.ok() ? PutTrials(database, stored, trials) : status;
}

}  // namespace genesis
