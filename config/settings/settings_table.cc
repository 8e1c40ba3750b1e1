#include "config/settings/settings_table.h"

#include <cmath>
#include <optional>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "base/scalars.h"
#include "config/settings/setting_values.h"
#include "config/settings/settings_rows.h"

namespace genesis {
namespace {

using Text = const std::string&;

std::string SetReducedPrecision(Text text, Settings& s) {
  bool allowed = true;
  std::string accepted = SetBool(text, allowed);
  // Any no wins, wherever it was said.
  s.reduced_precision = s.reduced_precision && allowed;
  return accepted;
}

std::string SetCpuFallback(Text text, Settings& s) {
  std::string word;
  std::string accepted = SetWord(text, {"bf16", "fp32", "emulate"}, word);
  if (accepted.empty()) {
    s.cpu_fallback = word == "bf16"   ? CpuFallback::kBf16
                     : word == "fp32" ? CpuFallback::kFp32
                                      : CpuFallback::kEmulate;
  }
  return accepted;
}

std::string SetFailureWatch(Text text, Settings& s) {
  std::string word;
  std::string accepted = SetWord(text, {"off", "advise", "enforce"}, word);
  if (accepted.empty()) {
    s.failure_watch = word == "off"      ? FailureWatchAction::kOff
                      : word == "advise" ? FailureWatchAction::kAdvise
                                         : FailureWatchAction::kEnforce;
  }
  return accepted;
}

std::string SetLossScale(Text text, Settings& s) {
  const std::optional<double> value = ParseDouble(text);
  // It is a float on the device: what overflows or vanishes there is no scale.
  const float scale = static_cast<float>(value.value_or(0));
  if (!(scale > 0) || !std::isfinite(scale)) return "a float > 0";
  s.loss_scale.initial = *value;
  return "";
}

std::string SetGrowthFactor(Text text, Settings& s) {
  const std::optional<double> value = ParseDouble(text);
  if (!value.has_value() || *value <= 1) return "a float > 1";
  s.loss_scale.growth_factor = *value;
  return "";
}

std::string SetBackoffFactor(Text text, Settings& s) {
  const std::optional<double> value = ParseDouble(text);
  if (!value.has_value() || *value <= 0 || *value >= 1) return "a float above 0 and below 1";
  s.loss_scale.backoff_factor = *value;
  return "";
}

std::string SetGrowthInterval(Text text, Settings& s) {
  const std::optional<int64_t> value = ParseInt64(text);
  if (!value.has_value() || *value < 1) return "a whole number >= 1";
  s.loss_scale.growth_interval = *value;
  return "";
}

std::vector<SettingRow> PlaceRows() {
  return {
      {"data_dir", "GENESIS_DATA_DIR", "genesis-data", false, "path", "a path",
       "Folder of everything that this daemon keeps: database, logs, datasets, checkpoints.",
       [](Text t, Settings& s) { return SetPath(t, false, s.data_dir); },
       [](const Settings& s) { return s.data_dir; }},
      {"datasets.root", "GENESIS_DATASETS_ROOT", "<data_dir>/datasets", true, "path", "a path",
       "Folder that the dataset paths of jobs are relative to and may not leave.",
       [](Text t, Settings& s) { return SetPath(t, true, s.datasets_root); },
       [](const Settings& s) { return s.datasets_root; }},
      {"datasets.max_uploads_bytes", "GENESIS_DATASETS_MAX_UPLOADS_BYTES", "274877906944", false,
       "bytes", "0 to 1125899906842624",
       "What all files that clients uploaded may take together, in <datasets.root>/uploads; "
       "another one is "
       "refused with RESOURCE_EXHAUSTED. 0 for no uploads.",
       [](Text t, Settings& s) -> std::string {
         const std::optional<int64_t> value = ParseInt64(t);
         if (!value.has_value() || *value < 0 || *value > int64_t{1} << 50) {
           return "0 to 1125899906842624";
         }
         s.datasets_max_uploads_bytes = *value;
         return "";
       },
       [](const Settings& s) { return absl::StrCat(s.datasets_max_uploads_bytes); }},
      {"checkpoints.dir", "GENESIS_CHECKPOINTS_DIR", "<data_dir>/checkpoints", true, "path",
       "a path", "Folder that checkpoints are written to.",
       [](Text t, Settings& s) { return SetPath(t, true, s.checkpoints_dir); },
       [](const Settings& s) { return s.checkpoints_dir; }},
      {"checkpoints.max_import_bytes", "GENESIS_CHECKPOINTS_MAX_IMPORT_BYTES", "68719476736", false,
       "bytes", "1 to 1125899906842624",
       "Size of the largest file that ImportCheckpoint takes; a larger one is refused with "
       "RESOURCE_EXHAUSTED.",
       [](Text t, Settings& s) -> std::string {
         const std::optional<int64_t> value = ParseInt64(t);
         if (!value.has_value() || *value < 1 || *value > int64_t{1} << 50) {
           return "1 to 1125899906842624";
         }
         s.checkpoints_max_import_bytes = *value;
         return "";
       },
       [](const Settings& s) { return absl::StrCat(s.checkpoints_max_import_bytes); }},
      {"log.file", "GENESIS_LOG_FILE", "<data_dir>/log/orchestrator.log", true, "path", "a path",
       "File that the log is appended to; the log goes to stderr too.",
       [](Text t, Settings& s) { return SetPath(t, true, s.log_file); },
       [](const Settings& s) { return s.log_file; }},
      {"log.level", "GENESIS_LOG_LEVEL", "info", false, "", "debug, info, warning or error",
       "The least important message that is logged.",
       [](Text t, Settings& s) {
         return SetWord(t, {"debug", "info", "warning", "error"}, s.log_level);
       },
       [](const Settings& s) { return s.log_level; }, true},
      {"deployment", "GENESIS_DEPLOYMENT", "stable", false, "", "stable or canary",
       "Value of the label `deployment` on every metric.",
       [](Text t, Settings& s) {
         return SetWord(t, {"stable", "canary"}, s.deployment);
       },
       [](const Settings& s) { return s.deployment; }},
  };
}

std::vector<SettingRow> JobRows() {
  return {
      {"workers.program", "GENESIS_WORKERS_PROGRAM", "<folder of genesisd>/genesis-worker", true,
       "path", "a path", "The program that trains; one process per job.",
       [](Text t, Settings& s) { return SetPath(t, true, s.worker_program); },
       [](const Settings& s) { return s.worker_program; }},
      {"workers.slots", "GENESIS_WORKERS_SLOTS", "1", false, "jobs", "1 to 256",
       "Jobs that run at once, on each device.",
       [](Text t, Settings& s) { return SetInt(t, 1, 256, s.worker_slots); },
       [](const Settings& s) { return absl::StrCat(s.worker_slots); }},
      {"workers.spares", "GENESIS_WORKERS_SPARES", "1", false, "processes", "0 to 64",
       "Warm workers that wait for a job, beyond those that run one.",
       [](Text t, Settings& s) { return SetInt(t, 0, 64, s.worker_spares); },
       [](const Settings& s) { return absl::StrCat(s.worker_spares); }},
      {"workers.start_timeout_seconds", "GENESIS_WORKERS_START_TIMEOUT_SECONDS", "120", false,
       "seconds", "1 to 3600", "A worker that has not said hello by then is killed and replaced.",
       [](Text t, Settings& s) { return SetInt(t, 1, 3600, s.worker_start_timeout_s); },
       [](const Settings& s) { return absl::StrCat(s.worker_start_timeout_s); }},
      {"queue.max_jobs", "GENESIS_QUEUE_MAX_JOBS", "1000", false, "jobs", "1 to 1000000",
       "Jobs that may be QUEUED at once; a further one is refused with RESOURCE_EXHAUSTED.",
       [](Text t, Settings& s) { return SetInt(t, 1, 1000000, s.queue_max_jobs); },
       [](const Settings& s) { return absl::StrCat(s.queue_max_jobs); }, true},
      {"drain.timeout_seconds", "GENESIS_DRAIN_TIMEOUT_SECONDS", "20", false, "seconds",
       "0 to 3600", "Time that running jobs have for a checkpoint when the daemon stops.",
       [](Text t, Settings& s) { return SetInt(t, 0, 3600, s.drain_timeout_s); },
       [](const Settings& s) { return absl::StrCat(s.drain_timeout_s); }, true},
  };
}

std::vector<SettingRow> PrecisionRows() {
  return {
      {"precision.reduced_precision", "GENESIS_PRECISION_REDUCED_PRECISION", "true", false, "",
       "exactly true or false",
       "false keeps every job in FP32. true leaves it to ENABLE_FP16_TRAINING and FEATURE_FLAGS. "
       "A false in any place wins.",
       &SetReducedPrecision,
       [](const Settings& s) -> std::string { return s.reduced_precision ? "true" : "false"; }},
      {"precision.cpu_fallback", "GENESIS_PRECISION_CPU_FALLBACK", "bf16", false, "",
       "bf16, fp32 or emulate",
       "What FP16 jobs run in on a machine without CUDA: bf16 takes MIXED_BF16 where the processor "
       "multiplies BF16 natively, else FP32. emulate runs FP16 20 to 140 times slower than FP32, "
       "to "
       "rehearse a rollback.",
       &SetCpuFallback,
       [](const Settings& s) -> std::string {
         if (s.cpu_fallback == CpuFallback::kEmulate) return "emulate";
         return s.cpu_fallback == CpuFallback::kBf16 ? "bf16" : "fp32";
       }},
      {"precision.failure_watch", "GENESIS_PRECISION_FAILURE_WATCH", "enforce", false, "",
       "off, advise or enforce",
       "What happens when more than half of the newest 10 jobs in reduced precision (at least 4) "
       "failed: enforce starts every new attempt in FP32 until genesisd is restarted, advise only "
       "logs and counts.",
       &SetFailureWatch,
       [](const Settings& s) -> std::string {
         if (s.failure_watch == FailureWatchAction::kOff) return "off";
         return s.failure_watch == FailureWatchAction::kAdvise ? "advise" : "enforce";
       },
       true},
      {"rehearsals.allowed", "GENESIS_REHEARSALS_ALLOWED", "false", false, "",
       "exactly true or false",
       "true accepts jobs with rehearsals: faults made on purpose, to see the precision policy "
       "act.",
       [](Text t, Settings& s) { return SetBool(t, s.rehearsals_allowed); },
       [](const Settings& s) -> std::string { return s.rehearsals_allowed ? "true" : "false"; }},
      {"precision.loss_scale", "FP16_LOSS_SCALE", "65536.0", false, "", "a float > 0",
       "Initial gradient scale of jobs that name none.", &SetLossScale,
       [](const Settings& s) { return FormatNumber(s.loss_scale.initial); }},
      {"precision.growth_factor", "FP16_GROWTH_FACTOR", "2.0", false, "", "a float > 1",
       "Growth of the gradient scale after a clean interval.", &SetGrowthFactor,
       [](const Settings& s) { return FormatNumber(s.loss_scale.growth_factor); }},
      {"precision.backoff_factor", "FP16_BACKOFF_FACTOR", "0.5", false, "",
       "a float above 0 and below 1", "Reduction of the gradient scale on overflow.",
       &SetBackoffFactor,
       [](const Settings& s) { return FormatNumber(s.loss_scale.backoff_factor); }},
      {"precision.growth_interval", "FP16_GROWTH_INTERVAL", "2000", false, "steps",
       "a whole number >= 1", "Clean steps between growths of the gradient scale.",
       &SetGrowthInterval,
       [](const Settings& s) { return absl::StrCat(s.loss_scale.growth_interval); }},
  };
}

}  // namespace

const std::vector<SettingRow>& SettingsTable() {
  static const auto& table = *[] {
    auto* rows = new std::vector<SettingRow>(PlaceRows());
    for (const std::vector<SettingRow>& more :
         {ListenerRows(), JobRows(), WorkerRows(), StoreRows(), PrecisionRows()}) {
      rows->insert(rows->end(), more.begin(), more.end());
    }
    return rows;
  }();
  return table;
}

std::string FlagOf(const SettingRow& row) {
  return absl::StrCat("--", absl::StrReplaceAll(row.key, {{".", "-"}, {"_", "-"}}));
}

const SettingRow* FindByKey(const std::string& key) {
  for (const SettingRow& row : SettingsTable()) {
    if (row.key == key) return &row;
  }
  return nullptr;
}

const SettingRow* FindByFlag(const std::string& flag) {
  for (const SettingRow& row : SettingsTable()) {
    if (FlagOf(row) == flag) return &row;
  }
  return nullptr;
}

const std::vector<GateVariable>& GateVariables() {
  static const auto& variables = *new std::vector<GateVariable>{
      {"ENABLE_FP16_TRAINING", "exactly true or false", "false",
       "Gate of every reduced-precision mode (FP16, BF16, mixed). Any other value means false and "
       "is logged as an error."},
      {"FEATURE_FLAGS", "comma list of name:bool", "(empty)",
       "fp16_training:false closes the gate, for a staged rollback. An unreadable fp16_training "
       "closes it too and is logged as an error; other names are not ours."},
  };
  return variables;
}

}  // namespace genesis
