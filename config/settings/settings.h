#pragma once

#include <functional>
#include <string>
#include <vector>

#include "base/environment.h"
#include "base/text/field_error.h"
#include "config/precision/gate.h"
#include "config/settings/settings_groups.h"

namespace genesis {

// All settings of genesisd, resolved: flag > environment > YAML > default. Paths are absolute.
struct Settings {
  std::string config_file;  // --config; empty for none.
  bool insecure = false;    // --insecure: allows open addresses without authentication.
  std::string data_dir = "genesis-data";
  std::string deployment = "stable";
  DatasetSettings datasets;
  CheckpointSettings checkpoints;
  LogSettings log;
  OtlpSettings otlp;
  GrpcSettings grpc;
  HttpSettings http;
  TlsSettings tls;
  AuthSettings auth;
  AuditSettings audit;
  WebhookSettings webhooks;
  WorkerSettings workers;
  LauncherSettings launchers;
  SlurmSettings slurm;
  KubernetesSettings kubernetes;
  HangSettings hang;
  SchedulerSettings scheduler;
  QueueSettings queue;
  QuotaSettings quotas;
  DrainSettings drain;
  RetentionSettings retention;
  HistorySettings history;
  StoreSettings store;
  PrecisionSettings precision;
  RehearsalSettings rehearsals;
  PrecisionGate gate;  // precision.reduced_precision, ENABLE_FP16_TRAINING, FEATURE_FLAGS.

  // Returns the folder of compiled steps, written by genesisctl compile and read by workers.
  std::string compiled_dir() const { return data_dir + "/compiled"; }
};

// One line of --check-config.
struct EffectiveSetting {
  std::string key;
  std::string value;
  std::string source;  // "default", "flag --x", "environment X", "file f:line".
};

struct LoadedSettings {
  Settings settings;
  std::vector<EffectiveSetting> effective;
  std::vector<FieldError> errors;     // The daemon exits with 2 unless empty. See FormatErrors.
  std::vector<std::string> warnings;  // Logged, e.g. an invalid FP16_* number while FP16 is off.
  bool show_help = false;
  bool show_version = false;
  bool show_schema = false;
  bool check_config = false;
  // Reads the same flags, environment and file again. Empty unless set by LoadSettings.
  std::function<LoadedSettings()> again = {};
};

// Resolves flags (argv without the program name), environment and the YAML file named by --config
// or GENESIS_CONFIG. `program_dir` is the folder of genesisd. Opens only the YAML file.
LoadedSettings LoadSettings(const std::vector<std::string>& args, const Environment& environment,
                            const std::string& program_dir);

// Returns what --insecure exposes, one sentence for each address beyond loopback that does not
// authenticate callers or does not encrypt. Empty if all do both.
std::vector<std::string> InsecureNotes(const Settings& settings);

// Returns the text of genesisd --help: usage, one entry per setting, exit codes.
std::string SettingsHelp();

// Returns the text of --check-config: one line per setting, "key = value  (source)", then the gate
// with its reason and errors, the warnings, and FormatErrors.
std::string FormatEffective(const LoadedSettings& loaded);

// Returns one line per error, "error: ...", with its file, line and column; "" for none.
std::string FormatErrors(const LoadedSettings& loaded);

}  // namespace genesis
