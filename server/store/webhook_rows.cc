#include "server/store/webhook_rows.h"

#include "absl/strings/str_cat.h"
#include "server/store/event_reads.h"

namespace genesis {
namespace {

constexpr int64_t kMaxDead = 1000;

// Begins each query that ReadDeliveries runs.
constexpr char kDeliveryColumns[] =
    "SELECT number, endpoint, sequence, job_id, create_time, attempts, next_attempt, error, event "
    "FROM webhook_deliveries d ";

absl::StatusOr<std::vector<StoredDelivery>> ReadDeliveries(Statement& query) {
  std::vector<StoredDelivery> deliveries;
  for (;;) {
    const absl::StatusOr<bool> row = query.Step();
    if (!row.ok()) return row.status();
    if (!*row) return deliveries;
    StoredDelivery& each = deliveries.emplace_back();
    each.number = query.Int(0);
    each.endpoint = query.Text(1);
    each.event = ParseEvent(query.Text(8), query.Int(2));
    each.event.set_job_id(query.Text(3));
    each.create_time = absl::FromUnixMillis(query.Int(4));
    each.attempts = static_cast<int>(query.Int(5));
    if (!query.IsNull(6)) each.next_attempt = absl::FromUnixMillis(query.Int(6));
    each.error = query.Text(7);
  }
}

absl::Status ForgetEndpoint(Database& database, const std::string& name) {
  for (const char* sql : {"DELETE FROM webhook_deliveries WHERE endpoint = ?1",
                          "DELETE FROM webhook_endpoints WHERE name = ?1"}) {
    absl::StatusOr<Statement> remove = database.Prepare(sql);
    if (!remove.ok()) return remove.status();
    if (absl::Status status = remove->Bind(1, name).Run(); !status.ok()) return status;
  }
  return absl::OkStatus();
}

absl::Status WriteCursors(Database& database, const std::map<std::string, int64_t>& cursors) {
  const absl::StatusOr<std::map<std::string, int64_t>> known = ReadWebhookCursors(database);
  if (!known.ok()) return known.status();
  for (const auto& [name, cursor] : *known) {
    if (cursors.contains(name)) continue;
    if (absl::Status status = ForgetEndpoint(database, name); !status.ok()) return status;
  }
  absl::StatusOr<Statement> put = database.Prepare(
      "INSERT INTO webhook_endpoints(name, cursor) VALUES(?1, ?2) "
      "ON CONFLICT(name) DO UPDATE SET cursor = ?2");
  if (!put.ok()) return put.status();
  for (const auto& [name, cursor] : cursors) {
    if (absl::Status status = put->Bind(1, name).Bind(2, cursor).Run(); !status.ok()) return status;
  }
  return absl::OkStatus();
}

absl::Status WriteAdditions(Database& database, const WebhookChanges& changes) {
  absl::StatusOr<Statement> add = database.Prepare(
      "INSERT OR IGNORE INTO webhook_deliveries(endpoint, sequence, job_id, create_time, attempts, "
      "next_attempt, error, event) VALUES(?1, ?2, ?3, ?4, 0, ?4, '', ?5)");
  if (!add.ok()) return add.status();
  for (const WebhookChanges::Addition& each : changes.added) {
    if (!changes.cursors.contains(each.endpoint)) continue;
    absl::Status status = add->Bind(1, each.endpoint)
                              .Bind(2, each.event.sequence())
                              .Bind(3, each.event.job_id())
                              .Bind(4, absl::ToUnixMillis(changes.now))
                              .BindBlob(5, each.event.SerializeAsString())
                              .Run();
    if (!status.ok()) return status;
  }
  return absl::OkStatus();
}

absl::Status WriteAttempts(Database& database, const std::vector<WebhookAttempt>& attempts) {
  absl::StatusOr<Statement> remove =
      database.Prepare("DELETE FROM webhook_deliveries WHERE number = ?1");
  if (!remove.ok()) return remove.status();
  absl::StatusOr<Statement> put = database.Prepare(
      "UPDATE webhook_deliveries SET attempts = attempts + 1, next_attempt = ?2, error = ?3 "
      "WHERE number = ?1");
  if (!put.ok()) return put.status();
  for (const WebhookAttempt& each : attempts) {
    absl::Status status;
    if (each.delivered) {
      status = remove->Bind(1, each.number).Run();
    } else {
      put->Bind(1, each.number).Bind(3, each.error);
      each.next_attempt ? put->Bind(2, absl::ToUnixMillis(*each.next_attempt)) : put->BindNull(2);
      status = put->Run();
    }
    if (!status.ok()) return status;
  }
  absl::StatusOr<Statement> prune = database.Prepare(
      "DELETE FROM webhook_deliveries WHERE next_attempt IS NULL AND number <= (SELECT number FROM "
      "webhook_deliveries WHERE next_attempt IS NULL ORDER BY number DESC LIMIT 1 OFFSET ?1)");
  return prune.ok() ? prune->Bind(1, kMaxDead).Run() : prune.status();
}

}  // namespace

std::string WebhookId(const training::v1::JobEvent& event) {
  return absl::StrCat("evt_", event.sequence());
}

absl::StatusOr<std::map<std::string, int64_t>> ReadWebhookCursors(Database& database) {
  absl::StatusOr<Statement> query = database.Prepare("SELECT name, cursor FROM webhook_endpoints");
  if (!query.ok()) return query.status();
  std::map<std::string, int64_t> cursors;
  for (;;) {
    const absl::StatusOr<bool> row = query->Step();
    if (!row.ok()) return row.status();
    if (!*row) return cursors;
    cursors[query->Text(0)] = query->Int(1);
  }
}

absl::StatusOr<std::map<std::string, WaitingDeliveries>> CountWaitingDeliveries(
    Database& database) {
  absl::StatusOr<Statement> query = database.Prepare(
      "SELECT endpoint, count(*), min(create_time) FROM webhook_deliveries "
      "WHERE next_attempt IS NOT NULL GROUP BY endpoint");
  if (!query.ok()) return query.status();
  std::map<std::string, WaitingDeliveries> waiting;
  for (;;) {
    const absl::StatusOr<bool> row = query->Step();
    if (!row.ok()) return row.status();
    if (!*row) return waiting;
    waiting[query->Text(0)] = {.count = query->Int(1),
                               .oldest = absl::FromUnixMillis(query->Int(2))};
  }
}

absl::StatusOr<std::vector<StoredDelivery>> ReadDueDeliveries(Database& database,
                                                              const std::string& endpoint,
                                                              absl::Time now, int64_t limit) {
  absl::StatusOr<Statement> query = database.Prepare(absl::StrCat(
      kDeliveryColumns,
      "WHERE endpoint = ?1 AND next_attempt <= ?2 AND sequence = (SELECT min(e.sequence) FROM "
      "webhook_deliveries e WHERE e.endpoint = d.endpoint AND e.job_id = d.job_id AND "
      "e.next_attempt IS NOT NULL) ORDER BY sequence LIMIT ?3"));
  if (!query.ok()) return query.status();
  query->Bind(1, endpoint).Bind(2, absl::ToUnixMillis(now)).Bind(3, limit);
  return ReadDeliveries(*query);
}

absl::StatusOr<std::vector<StoredDelivery>> ReadWebhookDeliveries(Database& database,
                                                                  int64_t before, int64_t limit) {
  absl::StatusOr<Statement> query = database.Prepare(
      absl::StrCat(kDeliveryColumns, "WHERE ?1 = 0 OR number < ?1 ORDER BY number DESC LIMIT ?2"));
  if (!query.ok()) return query.status();
  query->Bind(1, before).Bind(2, limit);
  return ReadDeliveries(*query);
}

absl::Status WriteWebhooks(Database& database, const WebhookChanges& changes) {
  absl::Status status = WriteCursors(database, changes.cursors);
  if (status.ok()) status = WriteAdditions(database, changes);
  return status.ok() ? WriteAttempts(database, changes.attempts) : status;
}

}  // namespace genesis
