#pragma once

#include <functional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "genesis/training/v1/distributed.pb.h"
#include "server/base/callback.h"
#include "server/launchers/launcher.h"

namespace genesis {

// An interface to the clusters from which the daemon may request workers. LauncherThreads
// implements it; tests use fakes.
//
// Thread-safe. No call blocks. Calls to one cluster run in order, and so do their callbacks, on the
// launcher's thread.
class Launchers {
 public:
  virtual ~Launchers() = default;
  virtual bool Has(training::v1::LauncherKind kind) const = 0;
  virtual void Submit(training::v1::LauncherKind kind, const LaunchRequest& request,
                      const Callback<std::string>& callback) = 0;
  virtual void Poll(training::v1::LauncherKind kind, const std::string& prefix,
                    const Callback<std::vector<LaunchStatus>>& callback) = 0;
  virtual void Cancel(training::v1::LauncherKind kind, const std::string& name,
                      const std::string& cluster_id,
                      const std::function<void(const absl::Status&)>& callback) = 0;
};

}  // namespace genesis
