#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "genesis/training/v1/operations.pb.h"
#include "server/store/reader_pool.h"
#include "server/store/sqlite.h"

namespace genesis {

// Metrics of jobs over time: the table fp16_stats of <data_dir>/metrics.db, which users may read
// with sqlite3 while the daemon runs (docs/history.md). It is a separate file, so that damage to it
// cannot affect jobs.
//
// Owner: the daemon. Threads: any for Read and ReadNewest; the recorder's for the rest. Failure:
// Database's status. A damaged file is set aside and replaced; a newer schema is not touched.
class HistoryStore {
 public:
  struct Query {
    // Position of a row: its time in milliseconds since the Unix epoch, and its number.
    struct Place {
      int64_t milliseconds = 0;  // Unix time.
      int64_t number = 0;
    };
    std::string job_id = {};  // Empty for all.
    absl::Time since = absl::InfinitePast();
    Place after = {};
    int64_t limit = 100;
  };
  struct Row {
    training::v1::HistoryRow row;
    Query::Place place;
  };

  explicit HistoryStore(std::string path) : path_(std::move(path)), readers_(path_) {}

  // Reads rows, oldest first. UNAVAILABLE if there is no readable file.
  absl::StatusOr<std::vector<Row>> Read(const Query& query);
  // Reads the newest rows and returns them oldest first.
  absl::StatusOr<std::vector<Row>> ReadNewest(absl::Time since, int64_t limit);

  // Appends all rows or none. Opens or creates the file first if necessary.
  absl::Status Append(const std::vector<training::v1::HistoryRow>& rows);
  // Removes rows older than `before`, a few thousand per call. Returns true if there may be more.
  absl::StatusOr<bool> Forget(absl::Time before);

 private:
  absl::Status EnsureOpen();
  absl::Status Prepare();
  absl::Status PutAside();
  absl::StatusOr<std::vector<Row>> Select(const std::string& sql, const Query& query);

  const std::string path_;
  std::unique_ptr<Database> database_;
  ReaderPool readers_;
};

}  // namespace genesis
