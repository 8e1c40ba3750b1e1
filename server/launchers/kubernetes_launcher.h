#pragma once

#include <atomic>
#include <map>
#include <string>
#include <vector>

#include "base/environment.h"
#include "base/text/json.h"
#include "config/settings/settings.h"
#include "server/launchers/api_server.h"
#include "server/launchers/launcher.h"
#include "server/launchers/worker_command.h"

namespace genesis {

// Kubernetes, through its API server. A request is an Indexed Job whose pods are the workers, built
// from the operator's template. If a pod fails, the Job ends and the daemon submits a new one. The
// object's name is derived from the request's name, so it cannot be created twice.
class KubernetesLauncher final : public Launcher {
 public:
  // The template is read again for each submission.
  KubernetesLauncher(KubernetesSettings settings, WorkerCommand worker, ApiServer api,
                     std::string namespace_name)
      : settings_(std::move(settings)),
        worker_(std::move(worker)),
        api_(std::move(api)),
        namespace_(std::move(namespace_name)) {}

  absl::StatusOr<std::string> Submit(const LaunchRequest& request) override;
  absl::StatusOr<std::vector<LaunchStatus>> Poll(const std::string& prefix) override;
  absl::Status Cancel(const std::string& name, const std::string& cluster_id) override;

 private:
  // Returns "/apis/batch/v1/namespaces/<namespace>/jobs".
  std::string JobsPath() const;
  // Returns the object of a reply with status `wanted`, otherwise the server's message as an error.
  absl::StatusOr<Json> Ask(const ApiServerCall& call, int wanted, const std::string& what) const;
  // Returns all objects of a list, which is read page by page.
  absl::StatusOr<std::vector<Json>> List(const std::string& path, const std::string& selector,
                                         const std::string& what) const;

  const KubernetesSettings settings_;
  const WorkerCommand worker_;
  const ApiServer api_;
  const std::string namespace_;
};

// The address of the API server and the namespace, from the settings or the pod's environment.
// FAILED_PRECONDITION if they are in neither.
struct KubernetesPlace {
  ApiServer::Options api;
  std::string namespace_name;
};
absl::StatusOr<KubernetesPlace> FindKubernetes(const KubernetesSettings& settings,
                                               const Environment& environment,
                                               const std::string& namespace_file);

}  // namespace genesis
