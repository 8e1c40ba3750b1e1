// Settings for the clusters from which the daemon may request workers.
#include <algorithm>

#include "absl/strings/str_split.h"
#include "absl/strings/string_view.h"
#include "config/settings/listen_address.h"
#include "config/settings/setting_group.h"
#include "config/settings/settings_rows.h"

namespace genesis {
namespace {

constexpr int kHour = 3600;

bool IsMadeOf(absl::string_view text, absl::string_view others) {
  return std::all_of(text.begin(), text.end(), [others](char c) {
    return absl::ascii_isalnum(static_cast<unsigned char>(c)) ||
           others.find(c) != absl::string_view::npos;
  });
}

ValueKind<std::string> Names() {
  return OptionalText("letters, digits, '.', '_', '-' and ','",
                      [](absl::string_view text) { return IsMadeOf(text, "._-,"); });
}

ValueKind<std::string> TimeLimit() {
  return OptionalText(
      "a time as sbatch takes it, such as 90, 04:00:00 or 1-12:00", [](absl::string_view text) {
        return std::all_of(text.begin(), text.end(), [](char c) {
          return absl::ascii_isdigit(static_cast<unsigned char>(c)) || c == ':' || c == '-';
        });
      });
}

ValueKind<std::string> Options() {
  return OptionalText(
      "sbatch's long options without their --, with a space between them, such as qos=high "
      "constraint=a100",
      [](absl::string_view text) {
        const std::vector<absl::string_view> words = absl::StrSplit(text, ' ');
        return std::all_of(words.begin(), words.end(), [](absl::string_view word) {
          return !word.empty() && absl::ascii_isalpha(static_cast<unsigned char>(word.front())) &&
                 std::all_of(word.begin(), word.end(), [](char c) {
                   return absl::ascii_isgraph(static_cast<unsigned char>(c));
                 });
        });
      });
}

ValueKind<std::string> DnsName() {
  return OptionalText("lower-case letters, digits, '-' and '.'", [](absl::string_view text) {
    return absl::AsciiStrToLower(text) == text && IsMadeOf(text, "-.");
  });
}

ValueKind<std::string> Url() {
  return OptionalText("https://host:port", [](absl::string_view text) {
    constexpr absl::string_view kScheme = "https://";
    return text.substr(0, kScheme.size()) == kScheme &&
           ParseHostPort(std::string(text.substr(kScheme.size()))).has_value();
  });
}

ValueKind<std::string> DialledAddress() {
  return OptionalText("a host and a port, such as trainer.example.org:50051",
                      [](absl::string_view text) {
                        const auto parsed = ParseHostPort(std::string(text));
                        return parsed.has_value() && parsed->port > 0 && IsMadeOf(text, ".-_:[]");
                      });
}

}  // namespace

std::vector<SettingRow> LauncherRows() {
  SettingGroup launchers(
      "launchers", [](auto& s) -> auto& { return s.launchers; });
  launchers
      .Text("daemon_address", &LauncherSettings::daemon_address, DialledAddress(), "host:port",
            "<grpc.listen>",
            "Where workers that a cluster starts reach this daemon. By default "
            "with the name of this host where grpc.listen is every address.")
      .Path("worker_program", &LauncherSettings::worker_program, "<workers.program>",
            "genesis-worker on the hosts of the cluster.")
      .Path("token_file", &LauncherSettings::token_file, "(none)",
            "File with a token of the role worker, at this path on the hosts of the cluster.")
      .Path("tls_ca", &LauncherSettings::tls_ca, "(none)",
            "Authority of this daemon's certificate, at this path on the hosts of the cluster.")
      .Path("tls_cert", &LauncherSettings::tls_cert, "(none)",
            "Client certificate of the workers, at this path on the hosts of the cluster.")
      .Path("tls_key", &LauncherSettings::tls_key, "(none)",
            "Its key, at this path on the hosts of the cluster.")
      .Number("poll_seconds", &LauncherSettings::poll_seconds, {1, kHour}, "seconds",
              "Time between looks at the state of what the clusters were asked for.");
  SettingGroup slurm(
      "slurm", [](auto& s) -> auto& { return s.slurm; });
  slurm
      .Flag("enabled", &SlurmSettings::enabled,
            "true lets jobs with distributed.launcher SLURM have their workers from Slurm. Needs "
            "its client programs, and workers.remote.")
      .Path("bin_dir", &SlurmSettings::bin_dir, "(PATH)", "Folder of sbatch, squeue and scancel.")
      .Text("partition", &SlurmSettings::partition, Names(), "", "(none)",
            "Partition that is asked. Empty for Slurm's default.")
      .Text("account", &SlurmSettings::account, Names(), "", "(none)",
            "Account that is charged. Empty for the user's own.")
      .Text("time_limit", &SlurmSettings::time_limit, TimeLimit(), "", "(none)",
            "Longest run of a job's workers, after which they checkpoint and are asked for again. "
            "Empty for the partition's.")
      .Text("options", &SlurmSettings::options, Options(), "", "(none)",
            "More options of sbatch. Those that the daemon gives itself go before them.")
      .Number("gpus_per_task", &SlurmSettings::gpus_per_task, {0, 64}, "GPUs",
              "GPUs of each rank, --gpus-per-task. A rank uses one. 0 for none.")
      .Number("cpus_per_task", &SlurmSettings::cpus_per_task, {1, 1024}, "processors",
              "Processors of each rank, --cpus-per-task, and its threads.")
      .Number("warn_seconds", &SlurmSettings::warn_seconds, {1, 65535}, "seconds",
              "How long before its time limit Slurm warns a job with SIGTERM, for a checkpoint.")
      .Path("log_dir", &SlurmSettings::log_dir, "<checkpoints.dir>/slurm",
            "Folder for what the workers print, at this path on the hosts of the cluster.");
  SettingGroup kubernetes(
      "kubernetes", [](auto& s) -> auto& { return s.kubernetes; });
  kubernetes
      .Path(
          "pod_template", &KubernetesSettings::pod_template, "(none)",
          "File with a PodTemplateSpec in YAML whose first container runs genesis-worker. With it "
          "jobs with distributed.launcher KUBERNETES have their workers from Kubernetes.")
      .Text("api_server", &KubernetesSettings::api_server, Url(), "", "(the pod's own)",
            "Address of the API server. Empty for that of the cluster whose pod this daemon is.")
      .Text("namespace", &KubernetesSettings::namespace_name, DnsName(), "", "(the pod's own)",
            "Namespace of the Jobs. Empty for that of the daemon's pod.")
      .Path("token_file", &KubernetesSettings::token_file,
            "/var/run/secrets/kubernetes.io/serviceaccount/token",
            "File with the token of the daemon's service account; read for each call.")
      .Path("ca_file", &KubernetesSettings::ca_file,
            "/var/run/secrets/kubernetes.io/serviceaccount/ca.crt",
            "Authority of the API server's certificate.")
      .Text("priority_class", &KubernetesSettings::priority_class, DnsName(), "", "(none)",
            "priorityClassName of the pods. Empty for what the template says.")
      .Number("gpus_per_pod", &KubernetesSettings::gpus_per_pod, {0, 64}, "GPUs",
              "nvidia.com/gpu of each pod. 0 for what the template says.");
  return RowsOf(launchers, slurm, kubernetes);
}

}  // namespace genesis
