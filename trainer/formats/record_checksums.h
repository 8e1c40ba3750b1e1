#pragma once

#include <atomic>
#include <cstdint>
#include <string_view>
#include <thread>
#include <vector>

#include "absl/synchronization/mutex.h"

namespace genesis {

// The checksums of a record's bytes: CRC-32 (zip's, ITU-T V.42) and CRC-32C (the manifest's, RFC
// 3720).
struct Checksums {
  uint32_t crc32 = 0;
  uint32_t crc32c = 0;
};

Checksums ChecksumsOf(const void* data, uint64_t size);

// The checksums of some records, in their order, by a thread ahead of the one that writes: they
// stand before a record's bytes, and made in turn with the writing they would keep a fast disk
// waiting.
//
// Owner: one writer. Threads: one, besides its own. Failure: none.
class ChecksumsAhead {
 public:
  // The bytes outlive it.
  explicit ChecksumsAhead(std::vector<std::string_view> records);
  // Leaves what nobody has asked for.
  ~ChecksumsAhead();
  ChecksumsAhead(const ChecksumsAhead&) = delete;
  ChecksumsAhead& operator=(const ChecksumsAhead&) = delete;

  // Waits until they are made.
  Checksums Of(size_t record);

 private:
  void Make();

  const std::vector<std::string_view> records_;
  absl::Mutex mutex_;
  std::vector<Checksums> made_ ABSL_GUARDED_BY(mutex_);
  std::atomic<bool> ending_{false};
  std::thread thread_;
};

}  // namespace genesis
