// The `top` command.
#include <algorithm>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "base/text/enum_names.h"
#include "cli/commands/commands.h"
#include "cli/job_curves.h"
#include "cli/progress_line.h"
#include "cli/screen.h"
#include "cli/table.h"
#include "cli/text.h"
#include "config/job/final_state.h"

namespace genesis::cli {
namespace {

using training::v1::Job;
using training::v1::JobState;

// The daemon's responses for one screen.
struct View {
  training::v1::GetServerInfoResponse info;
  training::v1::StatsResponse stats;
  training::v1::ListWorkersResponse workers;
  std::vector<Job> jobs;   // Jobs that have not ended; those with a worker first.
  std::vector<Job> ended;  // Newest jobs that have ended.
};

bool HasWorker(const Job& job) {
  return job.state() == training::v1::JOB_STATE_STARTING ||
         job.state() == training::v1::JOB_STATE_RUNNING ||
         job.state() == training::v1::JOB_STATE_PAUSING ||
         job.state() == training::v1::JOB_STATE_CANCELLING;
}

grpc::Status ListJobs(bool ended, int count, Session& session, std::vector<Job>& jobs) {
  training::v1::ListJobsRequest request;
  const google::protobuf::EnumDescriptor& states = *training::v1::JobState_descriptor();
  for (int i = 1; i < states.value_count(); ++i) {
    const auto state = static_cast<JobState>(states.value(i)->number());
    if (IsFinal(state) == ended) request.add_states(state);
  }
  request.set_page_size(count);
  if (!ended) request.set_order(training::v1::JOB_ORDER_PRIORITY);
  training::v1::ListJobsResponse response;
  const grpc::Status status = Call(&Service::ListJobs, request, response, session);
  jobs.assign(response.jobs().begin(), response.jobs().end());
  return status;
}

grpc::Status ReadView(Session& session, View& view) {
  constexpr int kJobs = 100, kEnded = 10;
  grpc::Status status = Call(&Service::GetServerInfo, {}, view.info, session);
  if (status.ok()) status = Call(&Service::Stats, {}, view.stats, session);
  if (status.ok()) status = Call(&Service::ListWorkers, {}, view.workers, session);
  if (status.ok()) status = ListJobs(/*ended=*/false, kJobs, session, view.jobs);
  if (status.ok()) status = ListJobs(/*ended=*/true, kEnded, session, view.ended);
  std::stable_partition(view.jobs.begin(), view.jobs.end(), HasWorker);
  return status;
}

std::string Percent(const training::v1::Progress& progress) {
  if (progress.total_steps() <= 0) return "-";
  return absl::StrFormat("%.1f%%", 100.0 * static_cast<double>(progress.step()) /
                                       static_cast<double>(progress.total_steps()));
}

// Returns what a job waits for, or the reason of its state if it is not running or queued.
std::string Note(const Job& job) {
  if (HasWorker(job)) return Printable(job.waiting_reason());
  if (!job.queue_reason().empty()) return Printable(job.queue_reason());
  return Printable(job.state_reason());
}

std::string JobsText(const View& view, JobSketches& sketches) {
  Table table({"JOB", "STATE", ">DONE", ">LOSS", "", ">SCALE", ">SAMPLES/S", ">MEMORY", ">ETA",
               "PRECISION", "OWNER", "NOTE"});
  const auto add = [&](const Job& job) {
    const training::v1::Progress& progress = job.progress();
    const bool runs = HasWorker(job) && progress.step() > 0;
    const JobSketch sketch = runs ? sketches.Of(job.id()) : JobSketch();
    table.AddRow({Printable(job.id()), ShortEnumName(job.state()), Percent(progress),
                  progress.step() > 0 ? FormatFigure(progress.loss()) : "-", sketch.loss,
                  progress.step() > 0 ? FormatFigure(progress.loss_scale()) : "-",
                  runs ? absl::StrFormat("%.0f", progress.samples_per_second()) : "-",
                  sketch.memory_bytes > 0 ? FormatBytes(sketch.memory_bytes) : "-",
                  runs ? RenderEta(job) : "",
                  job.has_precision() ? ShortEnumName(job.precision().mode()) : "-",
                  Printable(job.owner()), Note(job)});
  };
  for (const Job& job : view.jobs) add(job);
  for (const Job& job : view.ended) add(job);
  return view.jobs.empty() && view.ended.empty() ? "no jobs\n" : table.ToString();
}

std::string DevicesText(const training::v1::ListWorkersResponse& workers) {
  Table table({"DEVICE", ">BUSY", ">SLOTS", "WORKERS"});
  for (const training::v1::DeviceStatus& device : workers.devices()) {
    std::vector<std::string> held;
    for (const training::v1::WorkerInfo& worker : workers.workers()) {
      if (worker.device() != device.name()) continue;
      const std::string& doing = worker.job_id();
      held.push_back(absl::StrCat(
          Printable(worker.id()), " ",
          doing.empty() ? ShortEnumName(worker.state()) : absl::StrCat("-> ", Printable(doing))));
    }
    table.AddRow({Printable(device.name()), absl::StrCat(device.busy()),
                  absl::StrCat(device.slots()),
                  device.quarantined() ? absl::StrCat("quarantined: ", Printable(device.reason()))
                                       : absl::StrJoin(held, ", ")});
  }
  return table.ToString();
}

std::string Frame(const View& view, JobSketches& sketches, Session& session) {
  std::vector<std::string> counts;
  for (const auto& [state, count] : view.stats.jobs_by_state()) {
    if (count > 0) counts.push_back(absl::StrCat(Printable(state), " ", count));
  }
  std::sort(counts.begin(), counts.end());  // The order of a protobuf map is unspecified.
  return absl::StrCat(
      "genesisd ", Printable(view.info.version()), " at ", session.server,
      view.info.ready() ? "" : ", not ready", "  ",
      absl::FormatTime("%H:%M:%SZ", session.now(), absl::UTCTimeZone()),
      "\njobs: ", counts.empty() ? "none" : absl::StrJoin(counts, ", "),
      "\nreduced precision: ", Printable(view.info.reduced_precision_reason()),
      absl::StrFormat("; overflow rate %.2f%%\n\n", 100 * view.stats.overflow_rate()),
      DevicesText(view.workers), "\n", JobsText(view, sketches));
}

}  // namespace

ExitCode RunTop(const Arguments&, Session& session) {
  JobSketches sketches(session);
  View view;
  grpc::Status status = ReadView(session, view);
  if (!status.ok()) return ReportError(status, session);
  if (!session.terminal) {
    session.out << Frame(view, sketches, session);
    return ExitCode::kOk;
  }
  Screen screen(session);
  do {
    status = ReadView(session, view);
    screen.Draw(status.ok() ? Frame(view, sketches, session)
                            : absl::StrCat("genesisd at ", session.server,
                                           " does not respond: ", Printable(status.error_message()),
                                           "\nThe screen goes on when it does. q ends it."));
  } while (screen.WaitForKey(absl::Seconds(1)) != 'q');
  return ExitCode::kOk;
}

}  // namespace genesis::cli
