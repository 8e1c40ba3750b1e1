#pragma once

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "server/store/sqlite.h"

namespace genesis {

// A few connections that read one database, each used by one thread at a time. In WAL mode readers
// and the writer do not block each other.
//
// Owner: JobStore and HistoryStore, one each. Threads: any may call Borrow, which blocks while all
// connections are borrowed. Failure: Database's status if a connection cannot be opened.
class ReaderPool {
 public:
  explicit ReaderPool(std::string path) : path_(std::move(path)) {}
  ReaderPool(const ReaderPool&) = delete;
  ReaderPool& operator=(const ReaderPool&) = delete;

  // A borrowed connection, returned by the destructor. Keep it for one request only, because an
  // unfinished statement keeps the write-ahead log from being truncated.
  class Lease {
   public:
    Lease(ReaderPool* pool, std::unique_ptr<Database> database)
        : pool_(pool), database_(std::move(database)) {}
    Lease(Lease&&) = default;
    Lease& operator=(Lease&&) = delete;
    ~Lease() {
      if (database_ != nullptr) pool_->GiveBack(std::move(database_));
    }
    Database& operator*() const { return *database_; }

   private:
    ReaderPool* pool_;
    std::unique_ptr<Database> database_;
  };
  absl::StatusOr<Lease> Borrow();

 private:
  void GiveBack(std::unique_ptr<Database> database);

  const std::string path_;
  absl::Mutex mutex_;
  int out_ ABSL_GUARDED_BY(mutex_) = 0;
  std::vector<std::unique_ptr<Database>> idle_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace genesis
