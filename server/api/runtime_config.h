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

// The settings in effect. A reload applies all of its changes or none.
//
// Owner: the daemon. Threads: reloads run on the main thread, which may block on a disk; any thread
// may request one or read settings. Failure: a reload with an error changes nothing, is logged and
// counted, and returns the errors of the step that failed.
class RuntimeConfig {
 public:
  // Prepares a component for `next` without changing anything. Returns the function that applies
  // the settings, which cannot fail.
  using Commit = std::function<void()>;
  using Prepare = std::function<absl::StatusOr<Commit>(const Settings& next)>;

  RuntimeConfig(LoadedSettings loaded, Metrics* metrics);

  // Must be called before the first reload.
  void AddPart(Prepare prepare) { parts_.push_back(std::move(prepare)); }

  Settings settings() const;
  training::v1::GetConfigResponse Get() const;

  // Requests a reload; the callback runs on the main thread. UNAVAILABLE during shutdown.
  void Request(bool validate_only, const Callback<training::v1::ReloadConfigResponse>& callback);

  // Main thread only. INVALID_ARGUMENT for invalid values and files, FAILED_PRECONDITION for
  // changes that need a restart.
  absl::StatusOr<training::v1::ReloadConfigResponse> Reload(bool validate_only);
  // Called on the main thread a few times a second. Runs requested reloads. Also applies changed
  // files of tokens, keys, certificates or webhooks, once two checks in a row saw the same files.
  void Tend();
  // Refuses pending and future requests. Idempotent.
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
  // Main thread only: metadata of the files in use, and of the files at the last check.
  std::string files_in_use_;
  std::string files_seen_;
};

}  // namespace genesis
