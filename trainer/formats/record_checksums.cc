#include "trainer/formats/record_checksums.h"

#include <libdeflate.h>

#include <algorithm>
#include <utility>

#include "base/files/crc32c.h"

namespace genesis {

// Computes both checksums piece by piece, so that the second finds the data in the cache.
Checksums ChecksumsOf(const void* data, uint64_t size) {
  constexpr uint64_t kPiece = uint64_t{1} << 17;
  Checksums sums;
  const char* at = static_cast<const char*>(data);
  while (size > 0) {
    const uint64_t count = std::min(kPiece, size);
    sums.crc32 = libdeflate_crc32(sums.crc32, at, count);
    sums.crc32c = Crc32c(sums.crc32c, at, count);
    at += count;
    size -= count;
  }
  return sums;
}

ChecksumsAhead::ChecksumsAhead(std::vector<std::string_view> records)
    : records_(std::move(records)), thread_([this] { Make(); }) {}

ChecksumsAhead::~ChecksumsAhead() {
  ending_ = true;
  thread_.join();
}

void ChecksumsAhead::Make() {
  for (const std::string_view record : records_) {
    if (ending_) return;
    const Checksums sums = ChecksumsOf(record.data(), record.size());
    const absl::MutexLock lock(&mutex_);
    made_.push_back(sums);
  }
}

Checksums ChecksumsAhead::Of(size_t record) {
  const absl::MutexLock lock(&mutex_);
  const auto made = [&]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) { return made_.size() > record; };
  mutex_.Await(absl::Condition(&made));
  return made_[record];
}

}  // namespace genesis
