#pragma once

#include <atomic>
#include <string>

#include "absl/status/statusor.h"
#include "genesis/training/v1/training_service.pb.h"
#include "server/base/callback.h"
#include "server/base/io_threads.h"

namespace genesis {

// Copies a snapshot of <data_dir>/jobs.db to <data_dir>/backups/jobs-<UTC time>.db. Returns when
// the copy is on disk and only the newest 10 copies are left. Blocks on the disk, but not on
// readers or the writer of jobs.db. RESOURCE_EXHAUSTED if the disk is full.
absl::StatusOr<training::v1::BackupStoreResponse> MakeBackup(const std::string& data_dir);

// A thread that runs MakeBackup, for callers that must not block. Owner: the daemon.
// Threads: any may call Start; the callback runs on the backup's thread. Failure: MakeBackup's
// status; RESOURCE_EXHAUSTED if four backups are queued or in progress.
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
