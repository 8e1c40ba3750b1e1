#pragma once

#include <atomic>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "server/launchers/launchers.h"

namespace genesis {

// The launchers of a daemon. Each has its own thread, because a cluster may be slow.
//
// Owner: the daemon. Thread-safe. Failure: none of its own. An exception of a launcher becomes the
// error passed to the callback.
class LauncherThreads final : public Launchers {
 public:
  // Creates a launcher. Its calls must return soon after `*stopping` becomes true.
  using Make = std::function<std::unique_ptr<Launcher>(const std::atomic<bool>* stopping)>;

  LauncherThreads() = default;
  ~LauncherThreads() override { Stop(); }

  // Registers a launcher, which Start creates. Must be called before Start.
  void Add(training::v1::LauncherKind kind, Make make);
  // Creates the launchers and starts to run queued calls.
  void Start();
  // Drops queued calls without running their callbacks. Idempotent.
  void Stop();

  bool Has(training::v1::LauncherKind kind) const override { return lanes_.contains(kind); }
  void Submit(training::v1::LauncherKind kind, const LaunchRequest& request,
              const Callback<std::string>& callback) override;
  void Poll(training::v1::LauncherKind kind, const std::string& prefix,
            const Callback<std::vector<LaunchStatus>>& callback) override;
  void Cancel(training::v1::LauncherKind kind, const std::string& name,
              const std::string& cluster_id,
              const std::function<void(const absl::Status&)>& callback) override;

 private:
  // One launcher and its queued calls.
  struct Lane {
    Make make;
    std::unique_ptr<Launcher> launcher;
    std::thread thread;
    absl::Mutex mutex;
    std::deque<std::function<void()>> calls ABSL_GUARDED_BY(mutex);
    bool stopping ABSL_GUARDED_BY(mutex) = false;
  };
  static void Run(Lane& lane);
  void Post(training::v1::LauncherKind kind, std::function<void(Launcher&)> call);

  std::atomic<bool> stopping_{false};
  std::map<training::v1::LauncherKind, std::unique_ptr<Lane>> lanes_;  // Not changed after Start.
};

}  // namespace genesis
