#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

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

  // Parameters count from 1.
  Statement& Bind(int index, const std::string& text);
  Statement& Bind(int index, int64_t value);
  Statement& BindBlob(int index, const std::string& bytes);

  // Runs to completion and resets, for statements that return no rows.
  absl::Status Run();
  // True when a row is ready, false at the end (then reset).
  absl::StatusOr<bool> Step();

  // Columns count from 0.
  std::string Text(int column) const;
  int64_t Int(int column) const;

 private:
  sqlite3_stmt* statement_;
};

// One SQLite connection. Used by one thread at a time; errors carry SQLite's own text and the path.
class Database {
 public:
  // Opens or creates `path` with WAL and synchronous=FULL: a commit is on disk when it returns.
  static absl::StatusOr<std::unique_ptr<Database>> Open(const std::string& path);
  ~Database();
  Database(const Database&) = delete;
  Database& operator=(const Database&) = delete;

  absl::Status Execute(const std::string& sql);
  absl::StatusOr<Statement> Prepare(const std::string& sql);

 private:
  Database(sqlite3* handle, std::string path) : handle_(handle), path_(std::move(path)) {}
  absl::Status Error(const std::string& what) const;

  sqlite3* handle_;
  std::string path_;
};

}  // namespace genesis
