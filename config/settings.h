#pragma once

#include <string>
#include <vector>

#include "config/environment.h"
#include "config/field_error.h"
#include "config/gate.h"
#include "config/job_spec.h"
#include "config/precision.h"

namespace genesis {

// Every setting of genesisd, resolved. One table in settings_table.cc declares key, environment
// name, flag, default, unit, range and help; --help, --check-config and docs/reference.md are
// printed from it. Precedence: flag > environment > YAML > default.
struct Settings {
  std::string config_file;      // --config; empty for none.
  std::string data_dir;         // data_dir, default "genesis-data". Made absolute.
  std::string grpc_listen;      // grpc.listen, default "127.0.0.1:50051". Port 0 picks one.
  std::string http_listen;      // http.listen, default "127.0.0.1:8080".
  std::string datasets_root;    // datasets.root, default <data_dir>/datasets.
  std::string checkpoints_dir;  // checkpoints.dir, default <data_dir>/checkpoints.
  std::string log_file;         // log.file, default <data_dir>/log/orchestrator.log.
  std::string log_level;        // log.level: debug, info, warning or error. Default info.
  std::string deployment;       // deployment (GENESIS_DEPLOYMENT): stable or canary.
  std::string worker_program;   // workers.program, default genesis-worker beside genesisd.
  int worker_slots = 1;         // workers.slots: jobs at once. Default 1.
  int worker_spares = 1;        // workers.spares: warm workers beyond the running ones. Default 1.
  int worker_start_timeout_s = 120;  // workers.start_timeout_seconds
  int queue_max_jobs = 1000;  // queue.max_jobs: jobs QUEUED at once before RESOURCE_EXHAUSTED.
  int drain_timeout_s = 20;   // drain.timeout_seconds: for running jobs to checkpoint.
  CpuFallback cpu_fallback = CpuFallback::kBf16;  // precision.cpu_fallback.
  // precision.failure_watch.
  FailureWatchAction failure_watch = FailureWatchAction::kEnforce;
  bool rehearsals_allowed = false;  // rehearsals.allowed.
  bool reduced_precision = true;    // precision.reduced_precision; a false in any source wins.
  LossScaleSettings loss_scale;     // precision.loss_scale ... (FP16_LOSS_SCALE ...).
  PrecisionGate gate;  // precision.reduced_precision, ENABLE_FP16_TRAINING, FEATURE_FLAGS.
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
  bool check_config = false;
};

// Resolves flags (argv without the program's name), environment and the YAML file that --config or
// GENESIS_CONFIG names. `program_dir` is the folder of genesisd. Opens only the YAML file.
LoadedSettings LoadSettings(const std::vector<std::string>& args, const Environment& environment,
                            const std::string& program_dir);

// Text of genesisd --help: usage, one entry per setting, exit codes.
std::string SettingsHelp();

// Text of --check-config: one line per setting, "key = value  (source)", then the gate and why, its
// errors, the warnings, and FormatErrors.
std::string FormatEffective(const LoadedSettings& loaded);

// One line per error, "error: ...", each with its own file, line and column; "" for none.
std::string FormatErrors(const LoadedSettings& loaded);

}  // namespace genesis
