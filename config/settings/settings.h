#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "base/environment.h"
#include "base/field_error.h"
#include "config/job/job_spec.h"
#include "config/precision/gate.h"
#include "config/precision/precision.h"

namespace genesis {

// Every setting of genesisd, resolved. One table in settings_table.cc declares key, environment
// name, flag, default, unit, range and help; --help, --check-config and docs/reference.md are
// printed from it. Precedence: flag > environment > YAML > default.
struct Settings {
  std::string config_file;           // --config; empty for none.
  std::string data_dir;              // data_dir, default "genesis-data". Made absolute.
  std::string grpc_listen;           // grpc.listen, default "127.0.0.1:50051". Port 0 picks one.
  std::string http_listen;           // http.listen, default "127.0.0.1:8080".
  std::string grpc_unix_socket;      // grpc.unix_socket; empty for none.
  int grpc_unix_socket_mode = 0600;  // grpc.unix_socket_mode.
  int grpc_max_connections = 4096;   // grpc.max_connections.
  int grpc_max_message_bytes = 4194304;       // grpc.max_message_bytes.
  int grpc_keepalive_s = 60;                  // grpc.keepalive_seconds.
  std::string tls_certificate_file;           // tls.certificate_file; empty for no TLS.
  std::string tls_key_file;                   // tls.key_file.
  std::string tls_client_ca_file;             // tls.client_ca_file; empty for no mTLS.
  std::string tls_client_role = "submitter";  // tls.client_role: viewer, submitter or admin.
  std::string auth_tokens_file;               // auth.tokens_file; empty for no tokens.
  std::string audit_file;                     // audit.file, default <data_dir>/log/audit.log.
  bool insecure = false;                      // --insecure: an address may be open to everybody.
  std::string datasets_root;                  // datasets.root, default <data_dir>/datasets.
  std::string checkpoints_dir;                // checkpoints.dir, default <data_dir>/checkpoints.
  // datasets.max_uploads_bytes.
  int64_t datasets_max_uploads_bytes = int64_t{256} << 30;
  // checkpoints.max_import_bytes.
  int64_t checkpoints_max_import_bytes = int64_t{64} << 30;
  std::string log_file;        // log.file, default <data_dir>/log/orchestrator.log.
  std::string log_level;       // log.level: debug, info, warning or error. Default info.
  std::string deployment;      // deployment (GENESIS_DEPLOYMENT): stable or canary.
  std::string worker_program;  // workers.program, default genesis-worker beside genesisd.
  int worker_slots = 1;        // workers.slots: jobs at once on each device. Default 1.
  int worker_spares = 1;       // workers.spares: warm workers beyond the running ones. Default 1.
  int worker_start_timeout_s = 120;                    // workers.start_timeout_seconds
  std::vector<std::string> worker_devices = {"auto"};  // workers.devices.
  bool remote_workers = false;                         // workers.remote.
  bool cuda_graphs = false;                            // workers.cuda_graphs.
  int worker_reattach_timeout_s = 30;                  // workers.reattach_timeout_seconds.
  int quarantine_failures = 3;                         // workers.quarantine_failures.
  int quarantine_s = 600;                              // workers.quarantine_seconds.
  int hang_setup_s = 1800;                             // hang.setup_seconds.
  int hang_step_s = 600;                               // hang.step_seconds.
  int hang_evaluation_s = 1800;                        // hang.evaluation_seconds.
  int hang_checkpoint_s = 1800;                        // hang.checkpoint_seconds.
  bool preemption = true;                              // scheduler.preemption.
  int queue_max_jobs = 1000;      // queue.max_jobs: jobs QUEUED at once before RESOURCE_EXHAUSTED.
  int drain_timeout_s = 20;       // drain.timeout_seconds: for running jobs to checkpoint.
  int retention_jobs = 10000;     // retention.jobs: ended jobs that are kept.
  int retention_days = 0;         // retention.days: for how long; 0 for no limit.
  bool store_check_full = false;  // store.check: full rather than quick.
  int history_interval_s = 30;    // history.interval_seconds.
  int history_days = 30;          // history.retention_days.
  CpuFallback cpu_fallback = CpuFallback::kBf16;  // precision.cpu_fallback.
  // precision.failure_watch.
  FailureWatchAction failure_watch = FailureWatchAction::kEnforce;
  bool rehearsals_allowed = false;  // rehearsals.allowed.
  bool reduced_precision = true;    // precision.reduced_precision; a false in any source wins.
  LossScaleSettings loss_scale;     // precision.loss_scale ... (FP16_LOSS_SCALE ...).
  PrecisionGate gate;  // precision.reduced_precision, ENABLE_FP16_TRAINING, FEATURE_FLAGS.

  // Folder of compiled steps; made by genesisctl compile, read by workers.
  std::string compiled_dir() const { return data_dir + "/compiled"; }
};

// One row of --check-config.
struct EffectiveSetting {
  std::string key;
  std::string value;
  std::string source;  // "default", "flag --x", "environment X", "file f:line".
};

struct LoadedSettings {
  Settings settings;
  std::vector<EffectiveSetting> effective;
  std::vector<FieldError> errors;     // Start-up must stop (exit 2) unless empty. See FormatErrors.
  std::vector<std::string> warnings;  // Logged; e.g. an unreadable FP16_* number while FP16 is off.
  bool show_help = false;
  bool show_version = false;
  bool show_schema = false;
  bool check_config = false;
  // Reads the same flags, environment and file anew. Empty when not from LoadSettings.
  std::function<LoadedSettings()> again = {};
};

// Resolves flags (argv without the program's name), environment and the YAML file that --config or
// GENESIS_CONFIG names. `program_dir` is the folder of genesisd. Opens only the YAML file.
LoadedSettings LoadSettings(const std::vector<std::string>& args, const Environment& environment,
                            const std::string& program_dir);

// The rights of everybody who reaches the daemon because of --insecure, a sentence per address;
// empty when every address beyond loopback asks who calls.
std::vector<std::string> InsecureNotes(const Settings& settings);

// Text of genesisd --help: usage, one entry per setting, exit codes.
std::string SettingsHelp();

// Text of --check-config: one line per setting, "key = value  (source)", then the gate and why, its
// errors, the warnings, and FormatErrors.
std::string FormatEffective(const LoadedSettings& loaded);

// One line per error, "error: ...", each with its own file, line and column; "" for none.
std::string FormatErrors(const LoadedSettings& loaded);

}  // namespace genesis
