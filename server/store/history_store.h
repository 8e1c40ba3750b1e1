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

// How jobs did over time: the table fp16_stats of <data_dir>/metrics.db, which people also read
// with sqlite3 while the daemon runs (docs/history.md). A file of its own, so that nothing that
// happens to it can hurt jobs.
//
// Owner: the daemon. Threads: Read from any; the rest from the recorder's. Failure: the store's
// status. A damaged file is put aside and a new one begun; one of a newer schema is left alone.
class HistoryStore {
 public:
  struct Query {
    // Where a page ended: the row's time in seconds since the Unix epoch, and its number.
    struct Place {
      int64_t seconds = 0;
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

  // Oldest first. UNAVAILABLE when there is no file that can be read.
  absl::StatusOr<std::vector<Row>> Read(const Query& query);
  // The newest ones, oldest of them first.
  absl::StatusOr<std::vector<Row>> ReadNewest(absl::Time since, int64_t limit);

  // All rows or none. Opens or makes the file first where that is not done.
  absl::Status Append(const std::vector<training::v1::HistoryRow>& rows);
  // Removes rows that are older, some thousand at a time; true when there may be more.
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
