#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "config/job/job_spec.h"
#include "config/precision/precision.h"

namespace genesis {

// The structs below are named like the groups of the YAML file: `workers.slots` is
// Settings::workers.slots. Members are initialized with their defaults. Names, ranges and help are
// in SettingsTable(), from which --help, --check-config and docs/reference.md are printed.

struct GrpcSettings {
  std::string listen = "127.0.0.1:50051";  // Port 0 picks a free one.
  std::string unix_socket;                 // Empty for none.
  int unix_socket_mode = 0600;
  int max_connections = 4096;
  int max_message_bytes = 4194304;
  int keepalive_seconds = 60;
};

struct HttpSettings {
  std::string listen = "127.0.0.1:8080";
};

struct TlsSettings {
  std::string certificate_file;  // Empty disables TLS.
  std::string key_file;
  std::string client_ca_file;  // Empty disables client certificates.
  std::string client_role = "submitter";
};

struct AuthSettings {
  std::string tokens_file;  // Empty disables tokens.
  std::string jwks_file;    // Empty disables JWTs.
  std::string jwt_issuer;
  std::string jwt_audience;
  std::string jwt_owner_claim = "sub";
  std::string jwt_role_claim = "genesis_role";
  bool own_jobs_only = false;
};

struct AuditSettings {
  std::string file;
};

struct WebhookSettings {
  std::string file;  // Empty for no endpoints.
};

struct DatasetSettings {
  std::string root;
  int64_t max_uploads_bytes = int64_t{256} << 30;
};

struct CheckpointSettings {
  std::string dir;
  int64_t max_import_bytes = int64_t{64} << 30;
};

struct LogSettings {
  std::string file;
  std::string level = "info";
  std::string format = "text";  // Or "json".
};

// The receiver of spans and metrics (OpenTelemetry).
struct OtlpSettings {
  std::string endpoint;  // Base URL; empty disables the export.
};

struct WorkerSettings {
  std::string program;
  int slots = 1;   // Per device.
  int spares = 1;  // Idle workers kept per device.
  int predictors = 2;
  int start_timeout_seconds = 120;
  std::vector<std::string> devices = {"auto"};
  bool remote = false;
  bool cuda_graphs = false;
  int reattach_timeout_seconds = 30;
  int quarantine_failures = 3;
  int quarantine_seconds = 600;
};

// Settings of the workers of every cluster.
struct LauncherSettings {
  std::string daemon_address;  // Empty for grpc.listen.
  std::string worker_program;  // Path on the workers' hosts.
  std::string token_file;
  std::string tls_ca;
  std::string tls_cert;
  std::string tls_key;
  int poll_seconds = 5;
};

struct SlurmSettings {
  bool enabled = false;
  std::string bin_dir;  // Empty for PATH.
  std::string partition;
  std::string account;
  std::string time_limit;
  std::string options;
  int gpus_per_task = 0;
  int cpus_per_task = 1;
  int warn_seconds = 90;
  std::string log_dir;
};

struct KubernetesSettings {
  std::string pod_template;  // Empty disables Kubernetes.
  std::string api_server;    // Empty for the API server of the daemon's own pod.
  std::string namespace_name;
  std::string token_file;
  std::string ca_file;
  std::string priority_class;
  int gpus_per_pod = 0;
};

struct HangSettings {
  int setup_seconds = 1800;
  int step_seconds = 600;
  int evaluation_seconds = 1800;
  int checkpoint_seconds = 1800;
};

struct SchedulerSettings {
  bool preemption = true;
};

struct QueueSettings {
  int max_jobs = 1000;
};

// Limits of each owner; 0 for none.
struct QuotaSettings {
  int queued_jobs = 0;
  int slots = 0;
  int requests_per_second = 0;
  int64_t stored_bytes = 0;
};

struct DrainSettings {
  int timeout_seconds = 20;
};

struct RetentionSettings {
  int jobs = 10000;
  int days = 0;  // 0 for no limit.
};

struct HistorySettings {
  int interval_seconds = 30;
  int retention_days = 30;
  int64_t max_curves_bytes = int64_t{16} << 30;
};

struct StoreSettings {
  bool full_check = false;  // store.check: full instead of quick.
};

struct PrecisionSettings {
  bool reduced_precision = true;  // False if any source sets it to false.
  CpuFallback cpu_fallback = CpuFallback::kBf16;
  FailureWatchAction failure_watch = FailureWatchAction::kEnforce;
  LossScaleSettings loss_scale;  // precision.loss_scale, growth_factor, ... (FP16_*).
};

struct RehearsalSettings {
  bool allowed = false;
};

}  // namespace genesis
