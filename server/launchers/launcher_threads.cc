#include "server/launchers/launcher_threads.h"

#include <utility>

#include "server/base/guard.h"

namespace genesis {

using training::v1::LauncherKind;

void LauncherThreads::Add(LauncherKind kind, Make make) {
  auto lane = std::make_unique<Lane>();
  lane->make = std::move(make);
  lanes_[kind] = std::move(lane);
}

void LauncherThreads::Start() {
  for (auto& [kind, lane] : lanes_) {
    lane->launcher = lane->make(&stopping_);
    lane->thread = std::thread([&lane = *lane] { Run(lane); });
  }
}

void LauncherThreads::Stop() {
  stopping_ = true;
  for (auto& [kind, lane] : lanes_) {
    {
      absl::MutexLock lock(&lane->mutex);
      lane->stopping = true;
      lane->calls.clear();
    }
    if (lane->thread.joinable()) lane->thread.join();
  }
}

void LauncherThreads::Run(Lane& lane) {
  const auto has_news = [&lane]() ABSL_SHARED_LOCKS_REQUIRED(lane.mutex) {
    return lane.stopping || !lane.calls.empty();
  };
  for (;;) {
    std::function<void()> call;
    {
      absl::MutexLock lock(&lane.mutex);
      lane.mutex.Await(absl::Condition(&has_news));
      if (lane.stopping) return;
      call = std::move(lane.calls.front());
      lane.calls.pop_front();
    }
    Guarded("a call to a cluster", call).IgnoreError();
  }
}

void LauncherThreads::Post(LauncherKind kind, std::function<void(Launcher&)> call) {
  Lane& lane = *lanes_.at(kind);
  absl::MutexLock lock(&lane.mutex);
  if (lane.stopping) return;
  lane.calls.emplace_back([&lane, call = std::move(call)] { call(*lane.launcher); });
}

void LauncherThreads::Submit(LauncherKind kind, const LaunchRequest& request,
                             const Callback<std::string>& callback) {
  Post(kind, [request, callback](Launcher& launcher) {
    absl::StatusOr<std::string> id = absl::UnknownError("the call failed; the log says why");
    Guarded("a submission", [&] { id = launcher.Submit(request); }).IgnoreError();
    callback(id);
  });
}

void LauncherThreads::Poll(LauncherKind kind, const std::string& prefix,
                           const Callback<std::vector<LaunchStatus>>& callback) {
  Post(kind, [prefix, callback](Launcher& launcher) {
    absl::StatusOr<std::vector<LaunchStatus>> all =
        absl::UnknownError("the call failed; the log says why");
    Guarded("a look at a cluster", [&] { all = launcher.Poll(prefix); }).IgnoreError();
    callback(all);
  });
}

void LauncherThreads::Cancel(LauncherKind kind, const std::string& name,
                             const std::string& cluster_id,
                             const std::function<void(const absl::Status&)>& callback) {
  Post(kind, [name, cluster_id, callback](Launcher& launcher) {
    absl::Status cancelled = absl::UnknownError("the call failed; the log says why");
    Guarded("a cancellation", [&] { cancelled = launcher.Cancel(name, cluster_id); }).IgnoreError();
    callback(cancelled);
  });
}

}  // namespace genesis
