#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"

struct sqlite3;
struct sqlite3_stmt;

namespace genesis {

// A prepared statement. Used by one thread at a time; must not outlive its Database.
class Statement {
 public:
  explicit Statement(sqlite3_stmt* statement) : statement_(statement) {}
  Statement(Statement&& other) noexcept : statement_(other.statement_) {
    other.statement_ = nullptr;
  }
  Statement& operator=(Statement&&) = delete;
  ~Statement();

  // Parameters are numbered from 1.
  Statement& Bind(int index, const std::string& text);
  Statement& Bind(int index, int64_t value);
  Statement& BindReal(int index, double value);
  Statement& BindBlob(int index, const std::string& bytes);
  Statement& BindNull(int index);

  // Runs to completion and resets, for statements that return no rows.
  absl::Status Run();
  // Returns true if a row is ready, false at the end (then reset).
  absl::StatusOr<bool> Step();

  // Columns are numbered from 0.
  std::string Text(int column) const;
  int64_t Int(int column) const;
  double Real(int column) const;
  bool IsNull(int column) const;

 private:
  sqlite3_stmt* statement_;
};

// One SQLite connection. Used by one thread at a time. Errors contain SQLite's message and the
// path. Failure: RESOURCE_EXHAUSTED disk full, UNAVAILABLE locked by another process, DATA_LOSS
// damaged, FAILED_PRECONDITION read-only or not accessible, INTERNAL anything else.
class Database {
 public:
  enum class Access { kReadWrite, kReadOnly };
  struct Options {
    Access access = Access::kReadWrite;
    absl::Duration wait = absl::Seconds(5);  // Maximum wait for another process.
    int cache_kib = 2000;                    // Page cache of the connection.
  };
  enum class Check { kQuick, kFull };

  // Opens `path`. kReadWrite creates a missing file and sets WAL and synchronous=FULL: a commit is
  // on disk when Execute returns.
  static absl::StatusOr<std::unique_ptr<Database>> Open(const std::string& path,
                                                        const Options& options);
  static absl::StatusOr<std::unique_ptr<Database>> Open(const std::string& path) {
    return Open(path, Options());
  }
  ~Database();
  Database(const Database&) = delete;
  Database& operator=(const Database&) = delete;

  absl::Status Execute(const std::string& sql);
  absl::StatusOr<Statement> Prepare(const std::string& sql);
  // Returns the row ID of the last INSERT.
  int64_t LastInsertId() const;

  // Reads the whole file. DATA_LOSS with the first fault, DEADLINE_EXCEEDED if it takes longer than
  // `limit`. kQuick does not compare indexes with rows, which takes most of the time.
  absl::Status RunCheck(Check check, absl::Duration limit);

 private:
  Database(sqlite3* handle, std::string path) : handle_(handle), path_(std::move(path)) {}
  absl::Status Error(const std::string& what) const;

  sqlite3* handle_;
  std::string path_;
};

}  // namespace genesis
