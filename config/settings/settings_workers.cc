// Settings for workers, devices and the order of jobs.
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "config/settings/setting_group.h"
#include "config/settings/settings_rows.h"

namespace genesis {
namespace {

constexpr int kHour = 3600;
constexpr int kWeek = 604800;

// Accepts "cuda:0" to "cuda:255".
bool IsCudaDevice(const std::string& name) {
  constexpr int64_t kMax = 255;
  if (name.rfind("cuda:", 0) != 0) return false;
  const int64_t number = ParseInt64(name.substr(5)).value_or(-1);
  return number >= 0 && number <= kMax;
}

ValueKind<std::vector<std::string>> Devices() {
  static constexpr char kAccepted[] = "auto, cpu, none, or a list such as cuda:0,cuda:1";
  return {kAccepted, Json{{"type", "string"}},
          [](const std::string& text, std::vector<std::string>& devices) -> std::string {
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
            devices = std::move(names);
            return "";
          },
          [](const std::vector<std::string>& devices) { return absl::StrJoin(devices, ","); }};
}

}  // namespace

std::vector<SettingRow> WorkerRows() {
  SettingGroup workers(
      "workers", [](auto& s) -> auto& { return s.workers; });
  workers
      .Path("program", &WorkerSettings::program, "<folder of genesisd>/genesis-worker",
            "The program that trains; one process per job.")
      .Number("slots", &WorkerSettings::slots, {1, 256}, "jobs",
              "Jobs that run at once, on each device.")
      .Number("spares", &WorkerSettings::spares, {0, 64}, "processes",
              "Warm workers that wait for a job, beyond those that run one.")
      .Number(
          "predictors", &WorkerSettings::predictors, {0, 256}, "processes",
          "Processes that predict at once (Predict), one for each job or checkpoint asked; each "
          "takes the memory of its model and of LibTorch. 0 turns predictions off.")
      .Number("start_timeout_seconds", &WorkerSettings::start_timeout_seconds, {1, kHour},
              "seconds", "A worker that has not said hello by then is killed and replaced.")
      .Add("devices", &WorkerSettings::devices, Devices(), "",
           "Where jobs run. auto takes every CUDA device that the driver shows, and the processor "
           "where there is none; none leaves all jobs to workers of other hosts (workers.remote).")
      .Flag("remote", &WorkerSettings::remote,
            "true lets workers of other hosts attach on grpc.listen, with a token or certificate "
            "of the role worker. They need checkpoints.dir and datasets.root at the same paths.")
      .Flag("cuda_graphs", &WorkerSettings::cuda_graphs,
            "true lets jobs on CUDA devices capture a step once and replay it, where the step "
            "allows it: the processor no longer launches each operation. Job.precision.execution "
            "says which it is.")
      .Number("reattach_timeout_seconds", &WorkerSettings::reattach_timeout_seconds, {1, kHour},
              "seconds",
              "Time that a worker has to come back after genesisd was restarted or its stream "
              "broke; training goes on meanwhile. Then it is ended, and its job continues from the "
              "last checkpoint.")
      .Number("quarantine_failures", &WorkerSettings::quarantine_failures, {1, 1000}, "jobs",
              "Device errors in a row after which a device gets no more jobs for a while.")
      .Number("quarantine_seconds", &WorkerSettings::quarantine_seconds, {1, kWeek}, "seconds",
              "How long such a device gets no jobs before it is tried again.");
  SettingGroup hang(
      "hang", [](auto& s) -> auto& { return s.hang; });
  hang.Number("setup_seconds", &HangSettings::setup_seconds, {1, kWeek}, "seconds",
              "A worker that reads data and builds its model for longer hangs: it is ended, and "
              "the job is restarted within its budget.")
      .Number("step_seconds", &HangSettings::step_seconds, {1, kWeek}, "seconds",
              "The same for a worker that should make steps and makes none.")
      .Number("evaluation_seconds", &HangSettings::evaluation_seconds, {1, kWeek}, "seconds",
              "The same for one evaluation.")
      .Number("checkpoint_seconds", &HangSettings::checkpoint_seconds, {1, kWeek}, "seconds",
              "The same for one checkpoint.");
  SettingGroup scheduler(
      "scheduler", [](auto& s) -> auto& { return s.scheduler; });
  scheduler.Flag("preemption", &SchedulerSettings::preemption,
                 "Whether a job of higher priority takes the slot of a lower one, which is "
                 "checkpointed and queued again.");
  SettingGroup queue(
      "queue", [](auto& s) -> auto& { return s.queue; });
  queue
      .Number("max_jobs", &QueueSettings::max_jobs, {1, 1000000}, "jobs",
              "Jobs that may be QUEUED at once; a further one is refused with RESOURCE_EXHAUSTED.")
      .Reloadable();
  SettingGroup quotas(
      "quotas", [](auto& s) -> auto& { return s.quotas; });
  quotas
      .Number("queued_jobs", &QuotaSettings::queued_jobs, {0, 1000000}, "jobs",
              "Jobs of one owner that may be QUEUED at once; a further one is refused with "
              "RESOURCE_EXHAUSTED. 0: no limit.")
      .Reloadable()
      .Number("slots", &QuotaSettings::slots, {0, 1000000}, "slots",
              "Slots that the jobs of one owner may hold at once; further jobs wait. 0: no limit.")
      .Reloadable()
      .Number("requests_per_second", &QuotaSettings::requests_per_second, {0, 1000000}, "requests",
              "Calls that one caller below admin may begin each second, on average over ten "
              "seconds; a further one is refused with RESOURCE_EXHAUSTED. 0: no limit.")
      .Reloadable()
      .Number("stored_bytes", &QuotaSettings::stored_bytes, {0, int64_t{1} << 50}, "bytes",
              "Size of the replay buffers, uploads and checkpoints of one owner; what exceeds it, "
              "and a job of an owner who has reached it, is refused with RESOURCE_EXHAUSTED. 0: no "
              "limit.")
      .Reloadable();
  SettingGroup drain(
      "drain", [](auto& s) -> auto& { return s.drain; });
  drain
      .Number("timeout_seconds", &DrainSettings::timeout_seconds, {0, kHour}, "seconds",
              "Time that running jobs have for a checkpoint when the daemon stops.")
      .Reloadable();
  return RowsOf(workers, hang, scheduler, queue, quotas, drain);
}

}  // namespace genesis
