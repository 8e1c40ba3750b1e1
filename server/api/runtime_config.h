#pragma once

#include <deque>
#include <functional>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "config/settings/settings.h"
#include "genesis/training/v1/training_service.pb.h"
#include "metrics/metrics.h"
#include "server/base/callback.h"

namespace genesis {

// The settings in effect, and what changes them while the daemon runs: all of a reload or nothing.
//
// Owner: the daemon. Threads: reloads run on the main thread, which may wait for a disk; they are
// asked for, and settings are read, by any. Failure: a reload that cannot be done whole changes
// nothing, is logged and counted, and tells every fault at once.
class RuntimeConfig {
 public:
  // How a part takes settings: it gets ready for `next` without changing anything, and returns what
  // takes them over, which cannot fail.
  using Commit = std::function<void()>;
  using Prepare = std::function<absl::StatusOr<Commit>(const Settings& next)>;

  RuntimeConfig(LoadedSettings loaded, Metrics* metrics);

  // Before the first reload.
  void AddPart(Prepare prepare) { parts_.push_back(std::move(prepare)); }

  Settings settings() const;
  training::v1::GetConfigResponse Get() const;

  // Answers on the main thread. UNAVAILABLE once the daemon is going away.
  void Request(bool validate_only, const Callback<training::v1::ReloadConfigResponse>& callback);

  // Main thread. INVALID_ARGUMENT for unusable values and files, FAILED_PRECONDITION for changes
  // that need a restart.
  absl::StatusOr<training::v1::ReloadConfigResponse> Reload(bool validate_only);
  // Main thread, a few times a second: does what was asked for, and takes over tokens and
  // certificates whose files have changed, once they have stayed the same for two looks.
  void Tend();
  // Refuses what waits and all that comes. Idempotent.
  void Close();

 private:
  struct PendingReload {
    bool validate_only;
    Callback<training::v1::ReloadConfigResponse> callback;
  };
  absl::StatusOr<std::vector<Commit>> PrepareAll(const Settings& next) const;
  absl::StatusOr<training::v1::ReloadConfigResponse> TryReload(bool validate_only);
  void Count(const absl::Status& status, const std::string& what);
  void LookAtFiles();

  Metrics* const metrics_;
  std::vector<Prepare> parts_;
  mutable absl::Mutex mutex_;
  LoadedSettings loaded_ ABSL_GUARDED_BY(mutex_);
  std::deque<PendingReload> pending_ ABSL_GUARDED_BY(mutex_);
  bool closed_ ABSL_GUARDED_BY(mutex_) = false;
  // Main thread only. The look from outside of the files in use, and of the files as last seen.
  std::string files_in_use_;
  std::string files_seen_;
};

}  // namespace genesis
