#include "server/jobs/metric_reports.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/text/field_error.h"
#include "base/timestamp.h"
#include "config/job/faults.h"
#include "config/job/final_state.h"
#include "config/job/key_name.h"
#include "genesis/training/v1/worker_service.pb.h"
#include "server/base/job_log.h"
#include "server/jobs/followed_metric.h"

namespace genesis {
namespace {

using training::v1::Checkpoint;
using training::v1::FollowedMetric;
using training::v1::Job;
using training::v1::JobEvent;
using training::v1::MetricReport;
using training::v1::ReportedMetric;
using training::v1::ReportMetricsRequest;

constexpr size_t kMaxNames = 64;
constexpr int64_t kMaxStep = 1'000'000'000'000;  // The maximum of training.max_steps.

ReportedMetric* FindMetric(Job& job, const std::string& name) {
  for (ReportedMetric& each : *job.mutable_reported_metrics()) {
    if (each.name() == name) return &each;
  }
  return nullptr;
}

// Returns INVALID_ARGUMENT listing the errors that are found without the job.
absl::Status CheckReport(const ReportMetricsRequest& request) {
  Faults faults;
  if (request.step() < 0 || request.step() > kMaxStep) {
    faults.Add("step", absl::StrCat(request.step()), absl::StrCat("0 to ", kMaxStep));
  } else if (!request.has_step() && request.checkpoint_id().empty()) {
    faults.Add("step", "", "required; give the step that was measured, or checkpoint_id");
  }
  if (request.values().empty()) {
    faults.Add("values", "", "required; give one value or more, by name");
  }
  for (const auto& [name, value] : request.values()) {
    if (!IsKeyName(name)) {
      faults.Add(
          "values", "",
          absl::StrCat("the name ", QuoteValue(name), " is not accepted; accepted: ", kKeyNames));
    } else if (!std::isfinite(value)) {
      faults.Add(absl::StrCat("values.", name), FormatNumber(value), "a finite number");
    }
  }
  const std::vector<FieldError> errors = faults.Take();
  return errors.empty() ? absl::OkStatus() : ToStatus(errors);
}

// Returns the step of the report.
absl::StatusOr<int64_t> StepOf(const Job& job, const ReportMetricsRequest& request,
                               const JobTable& table) {
  const std::string& id = request.checkpoint_id();
  if (id.empty()) return request.step();
  const std::optional<Checkpoint> checkpoint = table.FindCheckpoint(id);
  if (!checkpoint || checkpoint->job_id() != job.id()) {
    return absl::NotFoundError(
        absl::StrCat("job \"", job.id(), "\" has no checkpoint ", QuoteValue(id),
                     "; if retention removed it, report the step without checkpoint_id"));
  }
  if (request.has_step() && request.step() != checkpoint->step()) {
    return ToStatus({{"step", absl::StrCat(request.step()),
                      absl::StrCat(checkpoint->step(), ", the step of the checkpoint, or none")}});
  }
  return checkpoint->step();
}

// Returns RESOURCE_EXHAUSTED if the job would have too many metrics after the report.
absl::Status CheckRoom(const Job& job, const MetricReport& report) {
  std::set<std::string> names;
  for (const ReportedMetric& each : job.reported_metrics()) names.insert(each.name());
  for (const auto& [name, value] : report.values()) names.insert(name);
  if (names.size() <= kMaxNames) return absl::OkStatus();
  return absl::ResourceExhaustedError(
      absl::StrCat("job \"", job.id(), "\" would have ", names.size(),
                   " reported metrics; accepted: at most ", kMaxNames, " names for a job"));
}

// Values of a metric by step.
using Series = std::map<int64_t, ReportedMetric>;
// The reports of a job by metric.
using History = std::map<std::string, Series>;

void Apply(const JobEvent& event, History& history) {
  if (event.has_precision_changed()) {
    for (auto& [name, series] : history) {
      series.erase(series.upper_bound(event.precision_changed().resumed_step()), series.end());
    }
    return;
  }
  const MetricReport& report = event.metrics_reported();
  for (const auto& [name, value] : report.values()) {
    ReportedMetric& metric = history[name][report.step()];
    metric.set_name(name);
    metric.set_step(report.step());
    metric.set_value(value);
    *metric.mutable_report_time() = event.time();
    metric.set_reporter(report.reporter());
  }
}

// Returns the reports in the events that are kept.
History HistoryOf(const std::string& job_id, const JobTable& table) {
  History history;
  for (const JobEvent& event : table.EventsOf(job_id, {"metrics_reported", "precision_changed"})) {
    Apply(event, history);
  }
  std::erase_if(history, [](const auto& each) { return each.second.empty(); });
  return history;
}

std::optional<double> ValueAt(const Series& series, int64_t step) {
  const auto found = series.find(step);
  return found == series.end() ? std::nullopt : std::optional(found->second.value());
}

void SetReported(const History& history, Checkpoint& checkpoint) {
  for (const auto& [name, series] : history) {
    if (const auto value = ValueAt(series, checkpoint.step())) {
      (*checkpoint.mutable_reported_metrics())[name] = *value;
    }
  }
}

// Sets the reported metrics and the followed metric of the job. `before`: see FollowMetric.
void Show(const History& history, const FollowedMetric* before, Job& job) {
  for (const auto& [name, series] : history) {
    ReportedMetric* shown = FindMetric(job, name);
    if (shown == nullptr) shown = job.add_reported_metrics();
    *shown = series.rbegin()->second;
  }
  std::sort(job.mutable_reported_metrics()->begin(), job.mutable_reported_metrics()->end(),
            [](const auto& a, const auto& b) { return a.name() < b.name(); });
  const auto followed = history.find(job.spec().evaluation().metric());
  if (followed == history.end()) return;
  std::map<int64_t, double> values;
  for (const auto& [step, metric] : followed->second) values[step] = metric.value();
  *job.mutable_followed_metric() =
      FollowMetric(job.spec(), values, before, IsFinal(job.state()));
}

}  // namespace

absl::StatusOr<Job> MetricReports::Record(const Job& job, const Caller& caller,
                                          const ReportMetricsRequest& request) {
  if (absl::Status fine = CheckReport(request); !fine.ok()) return fine;
  const std::string id = job.id();
  const absl::StatusOr<int64_t> step = StepOf(job, request, context_.table);
  if (!step.ok()) return step.status();
  History history = HistoryOf(id, context_.table);
  JobEvent event;
  *event.mutable_time() = ToTimestamp(context_.clock.Now());
  MetricReport& report = *event.mutable_metrics_reported();
  report.set_step(*step);
  report.set_checkpoint_id(request.checkpoint_id());
  report.set_reporter(caller.name);
  for (const auto& [name, value] : request.values()) {
    const auto series = history.find(name);
    const bool known = series != history.end() && ValueAt(series->second, *step) == value;
    if (!known) (*report.mutable_values())[name] = value;
  }
  if (report.values().empty()) return job;
  if (absl::Status room = CheckRoom(job, report); !room.ok()) return room;
  Apply(event, history);
  Job& changed = *context_.table.Edit(id);
  const FollowedMetric before = changed.followed_metric();
  Show(history, changed.has_followed_metric() ? &before : nullptr, changed);
  for (Checkpoint& checkpoint : context_.table.CheckpointsOf(id)) {
    if (checkpoint.step() != *step) continue;
    SetReported(history, checkpoint);
    context_.table.UpdateCheckpoint(checkpoint);
    if (changed.latest_checkpoint().id() == checkpoint.id()) {
      *changed.mutable_latest_checkpoint() = checkpoint;
    }
  }
  if (before.early_end().empty() && !changed.followed_metric().early_end().empty()) {
    context_.table.Count([log = JobLog(changed), why = changed.followed_metric().early_end()] {
      log.Info("ends early: {}", why);
    });
  }
  context_.table.AddEvent(id, std::move(event));
  Send(changed);
  return changed;
}

void MetricReports::Fill(const Job& job, Checkpoint& checkpoint) const {
  if (job.reported_metrics().empty()) return;
  SetReported(HistoryOf(job.id(), context_.table), checkpoint);
}

void MetricReports::ForgetAfter(Job& job, int64_t step) const {
  if (job.reported_metrics().empty()) return;
  auto& shown = *job.mutable_reported_metrics();
  shown.erase(std::remove_if(shown.begin(), shown.end(),
                             [&](const ReportedMetric& each) { return each.step() > step; }),
              shown.end());
  const FollowedMetric before = job.followed_metric();
  const bool keeps = job.has_followed_metric() && before.best_step() <= step;
  job.clear_followed_metric();
  Show(HistoryOf(job.id(), context_.table), keeps ? &before : nullptr, job);
  Send(job);
}

void MetricReports::Send(const Job& job) const {
  if (job.spec().evaluation().metric().empty()) return;
  training::v1::AttachResponse command;
  *command.mutable_metric_values() = MetricValuesOf(job, context_.table.CheckpointsOf(job.id()));
  context_.table.Announce([this, id = job.id(), command] { context_.workers->Send(id, command); });
}

}  // namespace genesis
