#include "server/store/reader_pool.h"

namespace genesis {
namespace {

constexpr int kMaxConnections = 4;
// Enough for a page of jobs. The rest of the file is in the system's page cache.
constexpr int kCacheKib = 512;

}  // namespace

absl::StatusOr<ReaderPool::Lease> ReaderPool::Borrow() {
  {
    absl::MutexLock lock(&mutex_);
    const auto has_room = [this]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
      return out_ < kMaxConnections;
    };
    mutex_.Await(absl::Condition(&has_room));
    ++out_;
    if (!idle_.empty()) {
      std::unique_ptr<Database> database = std::move(idle_.back());
      idle_.pop_back();
      return Lease(this, std::move(database));
    }
  }
  Database::Options options;
  options.access = Database::Access::kReadOnly;
  options.cache_kib = kCacheKib;
  absl::StatusOr<std::unique_ptr<Database>> database = Database::Open(path_, options);
  if (database.ok()) return Lease(this, *std::move(database));
  absl::MutexLock lock(&mutex_);
  --out_;
  return database.status();
}

void ReaderPool::GiveBack(std::unique_ptr<Database> database) {
  absl::MutexLock lock(&mutex_);
  --out_;
  idle_.push_back(std::move(database));
}

}  // namespace genesis
