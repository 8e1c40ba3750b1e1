#pragma once

#include <atomic>
#include <cstdint>
#include <string_view>
#include <thread>
#include <vector>

#include "absl/synchronization/mutex.h"

namespace genesis {

// The checksums of a record's bytes: CRC-32 (of zip, ITU-T V.42) and CRC-32C (of the manifest, RFC
// 3720).
struct Checksums {
  uint32_t crc32 = 0;
  uint32_t crc32c = 0;
};

Checksums ChecksumsOf(const void* data, uint64_t size);

// A thread that computes the checksums of records in order, ahead of the writer. A record's CRC-32
// precedes its bytes in the file, so computing it between writes would keep a fast disk waiting.
//
// Owner: one writer. Threads: one, in addition to its own. Failure: none.
class ChecksumsAhead {
 public:
  // The bytes of the records outlive this object.
  explicit ChecksumsAhead(std::vector<std::string_view> records);
  // Does not wait for the remaining checksums.
  ~ChecksumsAhead();
  ChecksumsAhead(const ChecksumsAhead&) = delete;
  ChecksumsAhead& operator=(const ChecksumsAhead&) = delete;

  // Waits until the record's checksums are computed, and returns them.
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
