// Settings about workers, devices and the order of jobs.
#include <optional>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "base/scalars.h"
#include "config/settings/setting_values.h"
#include "config/settings/settings_rows.h"

namespace genesis {
namespace {

using Text = const std::string&;

constexpr int kWeek = 604800;

// "cuda:0" to "cuda:255".
bool IsCudaDevice(const std::string& name) {
  constexpr int64_t kMax = 255;
  if (name.rfind("cuda:", 0) != 0) return false;
  const int64_t number = ParseInt64(name.substr(5)).value_or(-1);
  return number >= 0 && number <= kMax;
}

std::string SetDevices(Text text, Settings& settings) {
  constexpr char kAccepted[] = "auto, cpu, none, or a list such as cuda:0,cuda:1";
  std::vector<std::string> names;
  for (const auto part : absl::StrSplit(text, ',')) {
    const std::string name(part);
    const bool alone = name == "auto" || name == "cpu" || name == "none";
    if (alone ? text != name : !IsCudaDevice(name)) return kAccepted;
    for (const std::string& before : names) {
      if (before == name) return kAccepted;
    }
    names.push_back(name);
  }
  settings.worker_devices = std::move(names);
  return "";
}

}  // namespace

std::vector<SettingRow> WorkerRows() {
  return {
      {"workers.devices", "GENESIS_WORKERS_DEVICES", "auto", false, "",
       "auto, cpu, none, or a list such as cuda:0,cuda:1",
       "Where jobs run. auto takes every CUDA device that the driver shows, and the processor "
       "where "
       "there is none; none leaves all jobs to workers of other hosts (workers.remote).",
       &SetDevices, [](const Settings& s) { return absl::StrJoin(s.worker_devices, ","); }},
      {"workers.remote", "GENESIS_WORKERS_REMOTE", "false", false, "", "exactly true or false",
       "true lets workers of other hosts attach on grpc.listen, with a token or certificate of the "
       "role worker. They need checkpoints.dir and datasets.root at the same paths.",
       [](Text t, Settings& s) { return SetBool(t, s.remote_workers); },
       [](const Settings& s) -> std::string { return s.remote_workers ? "true" : "false"; }},
      {"workers.cuda_graphs", "GENESIS_WORKERS_CUDA_GRAPHS", "false", false, "",
       "exactly true or false",
       "true lets jobs on CUDA devices capture a step once and replay it, where the step "
       "allows it: the processor no longer launches each operation. Job.precision.execution says "
       "which it is.",
       [](Text t, Settings& s) { return SetBool(t, s.cuda_graphs); },
       [](const Settings& s) -> std::string { return s.cuda_graphs ? "true" : "false"; }},
      {"workers.reattach_timeout_seconds", "GENESIS_WORKERS_REATTACH_TIMEOUT_SECONDS", "30", false,
       "seconds", "1 to 3600",
       "Time that a worker has to come back after genesisd was restarted or its stream broke; "
       "training goes on meanwhile. Then it is ended, and its job continues from the last "
       "checkpoint.",
       [](Text t, Settings& s) { return SetInt(t, 1, 3600, s.worker_reattach_timeout_s); },
       [](const Settings& s) { return absl::StrCat(s.worker_reattach_timeout_s); }},
      {"workers.quarantine_failures", "GENESIS_WORKERS_QUARANTINE_FAILURES", "3", false, "jobs",
       "1 to 1000", "Device errors in a row after which a device gets no more jobs for a while.",
       [](Text t, Settings& s) { return SetInt(t, 1, 1000, s.quarantine_failures); },
       [](const Settings& s) { return absl::StrCat(s.quarantine_failures); }},
      {"workers.quarantine_seconds", "GENESIS_WORKERS_QUARANTINE_SECONDS", "600", false, "seconds",
       "1 to 604800", "How long such a device gets no jobs before it is tried again.",
       [](Text t, Settings& s) { return SetInt(t, 1, kWeek, s.quarantine_s); },
       [](const Settings& s) { return absl::StrCat(s.quarantine_s); }},
      {"hang.setup_seconds", "GENESIS_HANG_SETUP_SECONDS", "1800", false, "seconds", "1 to 604800",
       "A worker that reads data and builds its model for longer hangs: it is ended, and the job "
       "is "
       "restarted within its budget.",
       [](Text t, Settings& s) { return SetInt(t, 1, kWeek, s.hang_setup_s); },
       [](const Settings& s) { return absl::StrCat(s.hang_setup_s); }},
      {"hang.step_seconds", "GENESIS_HANG_STEP_SECONDS", "600", false, "seconds", "1 to 604800",
       "The same for a worker that should make steps and makes none.",
       [](Text t, Settings& s) { return SetInt(t, 1, kWeek, s.hang_step_s); },
       [](const Settings& s) { return absl::StrCat(s.hang_step_s); }},
      {"hang.evaluation_seconds", "GENESIS_HANG_EVALUATION_SECONDS", "1800", false, "seconds",
       "1 to 604800", "The same for one evaluation.",
       [](Text t, Settings& s) { return SetInt(t, 1, kWeek, s.hang_evaluation_s); },
       [](const Settings& s) { return absl::StrCat(s.hang_evaluation_s); }},
      {"hang.checkpoint_seconds", "GENESIS_HANG_CHECKPOINT_SECONDS", "1800", false, "seconds",
       "1 to 604800", "The same for one checkpoint.",
       [](Text t, Settings& s) { return SetInt(t, 1, kWeek, s.hang_checkpoint_s); },
       [](const Settings& s) { return absl::StrCat(s.hang_checkpoint_s); }},
      {"scheduler.preemption", "GENESIS_SCHEDULER_PREEMPTION", "true", false, "",
       "exactly true or false",
       "Whether a job of higher priority takes the slot of a lower one, which is checkpointed and "
       "queued again.",
       [](Text t, Settings& s) { return SetBool(t, s.preemption); },
       [](const Settings& s) -> std::string { return s.preemption ? "true" : "false"; }},
  };
}

}  // namespace genesis
