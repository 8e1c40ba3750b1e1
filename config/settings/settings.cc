#include "config/settings/settings.h"

#include <filesystem>
#include <optional>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "config/settings/settings_conflicts.h"
#include "config/settings/settings_sources.h"
#include "config/settings/settings_table.h"

namespace genesis {
namespace {

constexpr char kReducedPrecision[] = "precision.reduced_precision";

std::string Absolute(const std::string& path) {
  const std::string normal = std::filesystem::absolute(path).lexically_normal().string();
  // "a/b/" and "a/b" are the same folder and must be printed the same.
  return normal.size() > 1 && normal.ends_with('/') ? normal.substr(0, normal.size() - 1) : normal;
}

// Replaces user and password of a URL, because errors reach the log.
std::string WithoutUserInfo(const std::string& text) {
  const size_t scheme = text.find("://");
  if (scheme == std::string::npos) return text;
  const size_t begin = scheme + 3;
  const size_t at = text.substr(0, text.find_first_of("/?#", begin)).rfind('@');
  return at == std::string::npos || at < begin ? text
                                               : text.substr(0, begin) + "..." + text.substr(at);
}

FieldError FaultOf(const GivenValue& given, std::string accepted) {
  FieldError error;
  error.path = given.name;
  error.value = QuoteValue(WithoutUserInfo(given.text));
  error.accepted = std::move(accepted);
  error.file = given.file;
  error.line = given.line;
  error.column = given.column;
  return error;
}

// A resolver that fills one LoadedSettings. Used for one call; not thread-safe.
class Resolver {
 public:
  Resolver(LoadedSettings& loaded, GivenValues values)
      : loaded_(loaded), values_(std::move(values)) {}

  void Run(const Environment& environment) {
    // The gate decides whether an invalid FP16_* number is an error, so its setting comes first.
    Resolve(*FindByKey(kReducedPrecision));
    loaded_.settings.gate =
        ReadPrecisionGate(environment, loaded_.settings.precision.reduced_precision);
    loaded_.settings.gate.errors.insert(loaded_.settings.gate.errors.end(), gate_errors_.begin(),
                                        gate_errors_.end());
    for (const SettingRow& row : SettingsTable()) {
      if (row.key != kReducedPrecision) Resolve(row);
    }
  }

  const std::string& SourceOf(const SettingRow& row) { return sources_[row.key]; }

  // Sets the location of a conflict to that of the setting in its path.
  void Place(FieldError& fault) const {
    const auto found = values_.find(fault.path);
    if (found == values_.end() || found->second.empty()) return;
    const GivenValue& given = found->second.back();
    fault.path = given.name;
    fault.file = given.file;
    fault.line = given.line;
    fault.column = given.column;
  }

 private:
  void Resolve(const SettingRow& row) {
    Settings& settings = loaded_.settings;
    sources_[row.key] = "default";
    for (const GivenValue& given : values_[row.key]) {
      const std::string before = row.get(settings);
      const std::string accepted = row.set(given.text, settings);
      if (!accepted.empty()) {
        Report(row, given, accepted);
      } else if (row.key != kReducedPrecision || row.get(settings) != before) {
        // A later "true" does not override a "false", so the source of the "false" is kept.
        sources_[row.key] = given.source;
      }
    }
  }

  void Report(const SettingRow& row, const GivenValue& given, const std::string& accepted) {
    const FieldError fault = FaultOf(given, accepted);
    Settings& settings = loaded_.settings;
    if (row.key == kReducedPrecision) {
      // As with ENABLE_FP16_TRAINING, a typo during a rollback gives FP32, not an outage.
      settings.precision.reduced_precision = false;
      sources_[row.key] = given.source;
      gate_errors_.push_back(fault.ToString() + "; reduced precision is disabled");
    } else if (absl::StartsWith(given.name, "FP16_") && !settings.gate.enabled) {
      loaded_.warnings.push_back(
          absl::StrCat(fault.ToString(), "; ignored while reduced precision is disabled: ", row.key,
                       " is ", row.get(settings)));
    } else {
      loaded_.errors.push_back(fault);
    }
  }

  LoadedSettings& loaded_;
  GivenValues values_;
  std::map<std::string, std::string> sources_;
  std::vector<std::string> gate_errors_;
};

// Makes paths absolute and derives paths that depend on others.
void CompletePaths(const std::string& program_dir, Settings& settings) {
  settings.data_dir = Absolute(settings.data_dir);
  const auto complete = [](std::string& path, const std::string& fallback) {
    path = Absolute(path.empty() ? fallback : path);
  };
  complete(settings.datasets.root, settings.data_dir + "/datasets");
  complete(settings.checkpoints.dir, settings.data_dir + "/checkpoints");
  complete(settings.log.file, settings.data_dir + "/log/orchestrator.log");
  complete(settings.workers.program, program_dir + "/genesis-worker");
  complete(settings.launchers.worker_program, settings.workers.program);
  constexpr char kServiceAccount[] = "/var/run/secrets/kubernetes.io/serviceaccount";
  complete(settings.kubernetes.token_file, absl::StrCat(kServiceAccount, "/token"));
  complete(settings.kubernetes.ca_file, absl::StrCat(kServiceAccount, "/ca.crt"));
  complete(settings.slurm.log_dir, settings.checkpoints.dir + "/slurm");
  complete(settings.audit.file, settings.data_dir + "/log/audit.log");
  for (std::string* path :
       {&settings.grpc.unix_socket, &settings.tls.certificate_file, &settings.tls.key_file,
        &settings.tls.client_ca_file, &settings.auth.tokens_file, &settings.auth.jwks_file,
        &settings.webhooks.file, &settings.launchers.token_file, &settings.launchers.tls_ca,
        &settings.launchers.token_file, &settings.launchers.tls_ca, &settings.launchers.tls_cert,
        &settings.launchers.tls_key, &settings.slurm.bin_dir, &settings.kubernetes.pod_template}) {
    if (!path->empty()) *path = Absolute(*path);
  }
}

}  // namespace

LoadedSettings LoadSettings(const std::vector<std::string>& args, const Environment& environment,
                            const std::string& program_dir) {
  LoadedSettings loaded;
  const CommandLine line = ReadFlags(args, loaded.errors);
  loaded.show_help = line.show_help;
  loaded.show_version = line.show_version;
  loaded.show_schema = line.show_schema;
  loaded.check_config = line.check_config;
  loaded.settings.insecure = line.insecure;
  loaded.again = [args, environment, program_dir] {
    return LoadSettings(args, environment, program_dir);
  };

  const auto config_flag = line.flags.find("config");
  std::string config_source = "default";
  std::string config_name;
  if (config_flag != line.flags.end()) {
    loaded.settings.config_file = config_flag->second.text;
    config_source = config_flag->second.source;
    config_name = config_flag->second.name;
  } else if (const std::optional<std::string> path = environment("GENESIS_CONFIG")) {
    loaded.settings.config_file = *path;
    config_source = "environment GENESIS_CONFIG";
    config_name = "GENESIS_CONFIG";
  }

  GivenValues values;
  if (!loaded.settings.config_file.empty()) {
    ReadSettingsFile(loaded.settings.config_file, config_name, values, loaded.errors);
  }
  ReadSettingsEnvironment(environment, values);
  for (const auto& [key, given] : line.flags) {
    if (key != "config") values[key].push_back(given);
  }

  Resolver resolver(loaded, std::move(values));
  resolver.Run(environment);
  CompletePaths(program_dir, loaded.settings);
  std::vector<FieldError> conflicts;
  CheckConflicts(loaded.settings, conflicts);
  for (FieldError& conflict : conflicts) {
    resolver.Place(conflict);
    loaded.errors.push_back(std::move(conflict));
  }
  const std::string& file = loaded.settings.config_file;
  loaded.effective.push_back({"config", file.empty() ? "(none)" : file, config_source});
  for (const SettingRow& row : SettingsTable()) {
    loaded.effective.push_back({row.key, row.get(loaded.settings), resolver.SourceOf(row)});
  }
  return loaded;
}

}  // namespace genesis
