#pragma once

#include <atomic>
#include <string>

#include "absl/status/statusor.h"
#include "genesis/training/v1/training_service.pb.h"
#include "server/base/callback.h"
#include "server/base/io_threads.h"

namespace genesis {

// Copies <data_dir>/jobs.db, as it is at one moment, to <data_dir>/backups/jobs-<UTC time>.db. When
// it returns, the copy is on disk; of all copies the newest 10 are kept. Takes as long as the disk
// takes; neither readers nor the writer wait for it. RESOURCE_EXHAUSTED when the disk is full.
absl::StatusOr<training::v1::BackupStoreResponse> MakeBackup(const std::string& data_dir);

// MakeBackup on a thread of its own, for callers that must not wait.
// Owner: the daemon. Threads: Start from any; it answers on the backup's thread.
// Failure: MakeBackup's status; RESOURCE_EXHAUSTED when several are under way already.
class StoreBackup {
 public:
  explicit StoreBackup(std::string data_dir) : data_dir_(std::move(data_dir)), thread_(1) {}

  void Start(const Callback<training::v1::BackupStoreResponse>& callback);

 private:
  const std::string data_dir_;
  std::atomic<int> under_way_{0};
  IoThreads thread_;  // Last, so that it ends first.
};

}  // namespace genesis
