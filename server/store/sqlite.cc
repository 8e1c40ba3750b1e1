#include "server/store/sqlite.h"

#include <sqlite3.h>

#include <thread>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "base/steady_time.h"

namespace genesis {
namespace {

// Reports a full disk separately: the operator can fix it and the client can retry.
absl::Status ToStatus(sqlite3* handle, const std::string& what) {
  const std::string message = absl::StrCat(what, ": ", sqlite3_errmsg(handle));
  switch (sqlite3_errcode(handle)) {
    case SQLITE_FULL:
      return absl::ResourceExhaustedError(message);
    case SQLITE_BUSY:
    case SQLITE_LOCKED:
      return absl::UnavailableError(message);
    case SQLITE_CORRUPT:
    case SQLITE_NOTADB:
      return absl::DataLossError(message);
    case SQLITE_READONLY:
    case SQLITE_CANTOPEN:
    case SQLITE_PERM:
      return absl::FailedPreconditionError(message);
    case SQLITE_INTERRUPT:
      return absl::DeadlineExceededError(message);
    default:
      return absl::InternalError(message);
  }
}

}  // namespace

Statement::~Statement() { sqlite3_finalize(statement_); }

Statement& Statement::Bind(int index, const std::string& text) {
  sqlite3_bind_text64(statement_, index, text.data(), text.size(), SQLITE_TRANSIENT, SQLITE_UTF8);
  return *this;
}

Statement& Statement::Bind(int index, int64_t value) {
  sqlite3_bind_int64(statement_, index, value);
  return *this;
}

Statement& Statement::BindReal(int index, double value) {
  sqlite3_bind_double(statement_, index, value);
  return *this;
}

Statement& Statement::BindBlob(int index, const std::string& bytes) {
  sqlite3_bind_blob64(statement_, index, bytes.data(), bytes.size(), SQLITE_TRANSIENT);
  return *this;
}

Statement& Statement::BindNull(int index) {
  sqlite3_bind_null(statement_, index);
  return *this;
}

absl::Status Statement::Run() {
  const absl::StatusOr<bool> row = Step();
  if (!row.ok()) return row.status();
  sqlite3_reset(statement_);
  return absl::OkStatus();
}

absl::StatusOr<bool> Statement::Step() {
  const int result = sqlite3_step(statement_);
  if (result == SQLITE_ROW) return true;
  if (result == SQLITE_DONE) {
    sqlite3_reset(statement_);
    return false;
  }
  const absl::Status status =
      ToStatus(sqlite3_db_handle(statement_), "the store refused a statement");
  sqlite3_reset(statement_);
  return status;
}

std::string Statement::Text(int column) const {
  const auto* bytes = static_cast<const char*>(sqlite3_column_blob(statement_, column));
  return std::string(bytes == nullptr ? "" : bytes, sqlite3_column_bytes(statement_, column));
}

int64_t Statement::Int(int column) const { return sqlite3_column_int64(statement_, column); }

double Statement::Real(int column) const { return sqlite3_column_double(statement_, column); }

bool Statement::IsNull(int column) const {
  return sqlite3_column_type(statement_, column) == SQLITE_NULL;
}

absl::StatusOr<std::unique_ptr<Database>> Database::Open(const std::string& path,
                                                         const Options& options) {
  const bool writes = options.access == Access::kReadWrite;
  sqlite3* handle = nullptr;
  const int flags = (writes ? SQLITE_OPEN_READWRITE | SQLITE_OPEN_CREATE : SQLITE_OPEN_READONLY) |
                    SQLITE_OPEN_NOMUTEX;
  const int result = sqlite3_open_v2(path.c_str(), &handle, flags, nullptr);
  std::unique_ptr<Database> database(new Database(handle, path));
  if (result != SQLITE_OK) return database->Error("cannot open the store");
  sqlite3_busy_timeout(handle, static_cast<int>(absl::ToInt64Milliseconds(options.wait)));
  // SQLite opens a file as read-only if write permission is missing.
  if (writes && sqlite3_db_readonly(handle, "main") == 1) {
    return absl::FailedPreconditionError(
        absl::StrCat("cannot open the store ", path, ": it may not be written"));
  }
  absl::Status status = database->Execute(absl::StrCat("PRAGMA cache_size=-", options.cache_kib));
  for (const char* pragma : {"PRAGMA journal_mode=WAL", "PRAGMA synchronous=FULL"}) {
    if (status.ok() && writes) status = database->Execute(pragma);
  }
  if (!status.ok()) return status;
  return database;
}

Database::~Database() { sqlite3_close(handle_); }

absl::Status Database::Execute(const std::string& sql) {
  if (sqlite3_exec(handle_, sql.c_str(), nullptr, nullptr, nullptr) != SQLITE_OK) {
    return Error("the store refused a statement");
  }
  return absl::OkStatus();
}

absl::StatusOr<Statement> Database::Prepare(const std::string& sql) {
  sqlite3_stmt* statement = nullptr;
  if (sqlite3_prepare_v2(handle_, sql.c_str(), -1, &statement, nullptr) != SQLITE_OK) {
    return Error("the store refused a statement");
  }
  return Statement(statement);
}

int64_t Database::LastInsertId() const { return sqlite3_last_insert_rowid(handle_); }

absl::Status Database::RunCheck(Check check, absl::Duration limit) {
  absl::StatusOr<Statement> query =
      Prepare(check == Check::kQuick ? "PRAGMA quick_check(1)" : "PRAGMA integrity_check(1)");
  if (!query.ok()) return query.status();
  SteadyNotification done;
  std::thread timer([&] {
    if (!done.WaitFor(limit)) sqlite3_interrupt(handle_);
  });
  const absl::StatusOr<bool> row = query->Step();
  done.Notify();
  timer.join();
  if (!row.ok()) return row.status();
  const std::string found = *row ? query->Text(0) : "";
  if (found == "ok") return absl::OkStatus();
  // SQLite returns a heading, then one fault per line.
  const std::string fault =
      absl::StrReplaceAll(found, {{"*** in database main ***\n", ""}, {"\n", "; "}});
  return absl::DataLossError(absl::StrCat("the store ", path_, " is damaged: ", fault));
}

absl::Status Database::Error(const std::string& what) const {
  return ToStatus(handle_, absl::StrCat(what, " ", path_));
}

}  // namespace genesis
