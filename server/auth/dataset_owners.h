#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "server/auth/ownership.h"

namespace genesis {

// The owners of the datasets below the dataset root, and the bytes that each owner stores. A replay
// buffer belongs to the caller that created it, an upload to every caller that uploaded it. Other
// datasets, such as files that an operator copied there, have no owner: only admins change them,
// and every caller may read them.
//
// The record of a dataset is the file <root>/.owners/<name>, one owner a line. All records are kept
// in memory, so that no request reads folders.
//
// Owner: the daemon. Threads: any. Add, Copy, Leave, Delete and Forget block on the disk. Failure:
// the statuses of the file system, and those below.
class DatasetOwners {
 public:
  // Returns the bytes of an owner's checkpoints.
  using CheckpointBytes = std::function<absl::StatusOr<int64_t>(const std::string& owner)>;

  // Loads the records of the datasets that exist. The stores of the datasets then set their sizes.
  static absl::StatusOr<std::unique_ptr<DatasetOwners>> Open(std::string root,
                                                             Visibility visibility,
                                                             CheckpointBytes checkpoint_bytes);

  const std::string& root() const { return root_; }
  // Sets quotas.stored_bytes; 0 for no limit.
  void SetQuota(int64_t bytes) { quota_ = bytes; }

  // Returns true if the dataset has an owner.
  bool Has(const std::string& dataset) const;
  // Returns the owners of a dataset, as far as the caller may see them.
  std::vector<std::string> Of(const Caller& caller, const std::string& dataset) const;
  // Returns true if the caller may read the file or folder at `path`, relative to the root and
  // without links: a dataset, or a file of a replay buffer.
  bool Sees(const Caller& caller, const std::string& path) const;
  // Returns PERMISSION_DENIED unless the caller is an owner of the dataset or an admin.
  absl::Status CheckChange(const Caller& caller, const std::string& dataset) const;

  // Return RESOURCE_EXHAUSTED if an owner, or an owner of a dataset, may not store `more` bytes.
  // `what` names them, such as "a batch of 8 bytes".
  absl::Status CheckRoom(const std::string& owner, int64_t more, const std::string& what) const;
  absl::Status CheckRoomOf(const std::string& dataset, int64_t more, const std::string& what) const;

  // Adds an owner of a dataset of that size, durably. A new owner is subject to CheckRoom.
  absl::Status Add(const std::string& dataset, const std::string& owner, int64_t bytes);
  // Copies owners and size of a dataset to one that is about to appear, durably.
  absl::Status Copy(const std::string& from, const std::string& to);
  // Sets the size of a dataset that has owners.
  void SetBytes(const std::string& dataset, int64_t bytes);
  // Removes the caller from the owners, durably, if others remain. Returns false if the caller, as
  // an admin or the only owner, may delete the dataset instead.
  absl::StatusOr<bool> Leave(const Caller& caller, const std::string& dataset);
  // Deletes a dataset by `remove`, then drops its record. If the caller is not an admin and others
  // own it too, only ends the caller's ownership. Returns the error of a step that fails.
  absl::Status Delete(const Caller& caller, const std::string& dataset,
                      const std::function<absl::Status()>& remove);
  // Removes the record of a dataset that is gone.
  void Forget(const std::string& dataset);

 private:
  struct Record {
    std::set<std::string> owners;
    int64_t bytes = 0;
  };

  DatasetOwners(std::string root, Visibility visibility, CheckpointBytes checkpoint_bytes)
      : root_(std::move(root)),
        visibility_(visibility),
        checkpoint_bytes_(std::move(checkpoint_bytes)) {}
  absl::Status Load(const std::string& folder);
  // Removes the records of datasets that an operator removed, or that a crash kept from appearing.
  void ForgetMissing();
  std::string PathOf(const std::string& dataset) const;
  Record Find(const std::string& dataset) const;
  void Replace(const std::string& dataset, const Record& record);
  absl::Status Write(const std::string& dataset, const Record& record)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(files_);

  const std::string root_;
  const Visibility visibility_;
  const CheckpointBytes checkpoint_bytes_;
  std::atomic<int64_t> quota_ = 0;
  // Held while records are written, so that each file has the newest owners.
  absl::Mutex files_ ABSL_ACQUIRED_BEFORE(mutex_);
  mutable absl::Mutex mutex_;
  std::map<std::string, Record> records_ ABSL_GUARDED_BY(mutex_);
  std::map<std::string, int64_t> bytes_ ABSL_GUARDED_BY(mutex_);  // Keyed by owner.
};

}  // namespace genesis
