// The part of Daemon for the clusters from which it may request workers.
#include <filesystem>

#include "absl/strings/str_cat.h"
#include "base/environment.h"
#include "server/daemon.h"
#include "server/launchers/kubernetes_launcher.h"
#include "server/launchers/slurm_launcher.h"
#include "server/launchers/worker_command.h"

namespace genesis {
namespace {

// The file in a pod that holds the pod's namespace.
constexpr char kNamespaceFile[] = "/var/run/secrets/kubernetes.io/serviceaccount/namespace";

}  // namespace

std::optional<StartFailure> Daemon::AddLaunchers() {
  // Evaluated at start, when the address that workers dial is known.
  const auto command = [this] {
    WorkerCommand worker = {settings_.launchers, settings_.checkpoints.dir};
    worker.settings.daemon_address =
        DaemonAddressFor(settings_.launchers.daemon_address, grpc_address_);
    return worker;
  };
  if (settings_.slurm.enabled) {
    launchers_.Add(training::v1::LAUNCHER_KIND_SLURM,
                   [this, command](const std::atomic<bool>* stopping) {
                     return std::make_unique<SlurmLauncher>(settings_.slurm, command(), stopping);
                   });
  }
  if (settings_.kubernetes.pod_template.empty()) return std::nullopt;
  absl::StatusOr<KubernetesPlace> place =
      FindKubernetes(settings_.kubernetes, ProcessEnvironment, kNamespaceFile);
  if (!place.ok()) return StartFailure(ExitCode::kUsage, place.status());
  launchers_.Add(training::v1::LAUNCHER_KIND_KUBERNETES, [this, command, place = *std::move(place)](
                                                             const std::atomic<bool>* stopping) {
    return std::make_unique<KubernetesLauncher>(
        settings_.kubernetes, command(), ApiServer(place.api, stopping), place.namespace_name);
  });
  return std::nullopt;
}

std::optional<StartFailure> Daemon::StartLaunchers() {
  if (settings_.slurm.enabled) {
    std::error_code error;
    std::filesystem::create_directories(settings_.slurm.log_dir, error);
    if (error) {
      return StartFailure{ExitCode::kStoreFailure,
                          absl::StrCat("slurm.log_dir: cannot create folder ",
                                       settings_.slurm.log_dir, ": ", error.message())};
    }
  }
  launchers_.Start();
  return std::nullopt;
}

}  // namespace genesis
