#include "server/jobs/job_queries.h"

#include <set>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/text/enum_names.h"
#include "base/text/field_error.h"
#include "base/timestamp.h"
#include "config/job/job_spec.h"
#include "config/precision/precision.h"
#include "server/jobs/gang.h"
#include "server/jobs/job_errors.h"
#include "server/jobs/scheduler.h"
#include "server/launchers/describe_submission.h"
#include "server/ledger/history_row.h"
#include "server/ledger/job_state.h"

namespace genesis {
namespace {

absl::StatusOr<absl::Duration> WindowLength(const training::v1::StatsRequest& request) {
  constexpr int kDefault = 300;
  constexpr int kMax = 3600;
  const int seconds = request.window_seconds() == 0 ? kDefault : request.window_seconds();
  if (seconds >= 1 && seconds <= kMax) return absl::Seconds(seconds);
  return ToStatus({{"window_seconds", absl::StrCat(request.window_seconds()),
                    absl::StrCat("1 to ", kMax, ", or 0 for ", kDefault)}});
}

// Sets whether running jobs use reduced precision (`otherwise` if none has a step), and the scale.
void PutWhatRuns(const JobView& view, bool otherwise, training::v1::StatsResponse& stats) {
  bool any = false;
  bool reduced = false;
  for (const JobView::Shown& each : view.InMemory()) {
    const training::v1::Job& job = each.snapshot->job;
    if (!IsOnWorker(job.state()) || job.progress().step() == 0) continue;
    any = true;
    // The job's precision already reflects a change before a step in the new mode is reported.
    const training::v1::PrecisionMode mode = job.precision().mode();
    reduced = reduced || IsReducedPrecision(mode);
    if (HasLossScale(mode)) stats.set_current_scale(job.progress().loss_scale());
  }
  stats.set_fp16_enabled_runtime(any ? reduced : otherwise);
}

// Returns why a job that needs several slots may still wait at the head of the queue.
std::string GangReason(int needed, int slots, int free_slots) {
  if (needed > slots) {
    return absl::StrCat("needs ", needed, " slots at one time, and there are ", slots,
                        "; it starts when workers of other hosts bring the others");
  }
  return absl::StrCat("needs ", needed, " slots at one time; ", free_slots, " of ", slots,
                      " are free",
                      free_slots < needed ? "" : ", and it waits for their workers or for memory");
}

}  // namespace

// Reads snapshots, because the job table belongs to the writer thread.
std::map<std::string, JobQueries::QueuePlace> JobQueries::ReadQueue() const {
  const absl::Time now = clock_.Steady();
  const int slots = workers_->slots();
  std::vector<WaitingJob> waiting;
  std::vector<HoldingJob> holding;
  std::map<std::string, QueuePlace> submitted;  // Jobs on clusters have no queue position.
  std::map<std::string, int> gangs;             // Slots of jobs that need several.
  for (const JobView::Shown& each : ledger_.view().InMemory()) {
    const Job& job = each.snapshot->job;
    if (IsSubmitted(job.spec())) {
      if (job.state() == training::v1::JOB_STATE_QUEUED) {
        submitted[job.id()].reason = DescribeWait(job, workers_->WarmOf(job.submission().name()));
      }
    } else if (job.state() == training::v1::JOB_STATE_QUEUED) {
      const int needed = RanksOf(job.spec(), slots);
      waiting.push_back({job.id(), job.priority(), job.owner(), each.ordinal, needed});
      if (needed > 1) gangs[job.id()] = needed;
    } else if (IsOnWorker(job.state())) {
      holding.push_back(Holding(job, now));
    }
  }
  const std::vector<std::string> order = QueueOrder(waiting, holding, dispatcher_.usage(), now);
  std::vector<int> needed(order.size(), 1);
  for (size_t i = 0; i < order.size() && !gangs.empty(); ++i) {
    if (const auto gang = gangs.find(order[i]); gang != gangs.end()) needed[i] = gang->second;
  }
  const std::vector<absl::Time> starts =
      EstimateStarts(needed, slots, holding, ExpectedDuration(), now);
  const std::set<std::string> over = dispatcher_.quotas().OverQuota(order, waiting, holding);
  const int free_slots = workers_->free_slots();
  std::map<std::string, QueuePlace> places = std::move(submitted);
  for (size_t i = 0; i < order.size(); ++i) {
    QueuePlace& place = places[order[i]];
    place.position = static_cast<int>(i) + 1;
    if (i < starts.size()) place.start = clock_.Now() + (starts[i] - now);
    if (needed[i] > 1) place.reason = GangReason(needed[i], slots, free_slots);
    if (over.contains(order[i])) {
      place.reason = "its owner holds as many slots as quotas.slots allows";
    }
  }
  return places;
}

std::optional<absl::Duration> JobQueries::ExpectedDuration() const {
  const double seconds = stats_.expected_job_seconds();
  if (seconds <= 0) return std::nullopt;
  return absl::Seconds(seconds);
}

void JobQueries::PutPlace(const std::map<std::string, QueuePlace>& places, Job& job) {
  const auto place = places.find(job.id());
  if (place == places.end()) return;
  job.set_queue_position(place->second.position);
  if (!place->second.reason.empty()) job.set_queue_reason(place->second.reason);
  if (place->second.start) *job.mutable_estimated_start_time() = ToTimestamp(*place->second.start);
}

absl::StatusOr<training::v1::Job> JobQueries::Get(const Caller& caller,
                                                  const std::string& job_id) const {
  const absl::StatusOr<std::shared_ptr<const JobSnapshot>> snapshot =
      ledger_.view().Snapshot(job_id);
  if (!snapshot.ok()) return snapshot.status();
  if (*snapshot == nullptr || !visibility_.Sees(caller, (*snapshot)->job.owner())) {
    return NoSuchJob(job_id);
  }
  Job job = (*snapshot)->job;
  if (job.state() == training::v1::JOB_STATE_QUEUED) PutPlace(ReadQueue(), job);
  if (IsGang(job) && IsOnWorker(job.state())) MarkStraggler(clock_.Now(), job);
  return job;
}

absl::Status JobQueries::LimitOwner(const Caller& caller, std::string& owner) const {
  if (visibility_.SeesAll(caller)) return absl::OkStatus();
  if (!owner.empty() && owner != caller.name) {
    return absl::PermissionDeniedError(absl::StrCat(
        "owner is ", QuoteValue(owner), "; accepted: ", QuoteValue(caller.name),
        " or none, because this daemon shows each caller only its own jobs (auth.own_jobs_only)"));
  }
  owner = caller.name;
  return absl::OkStatus();
}

absl::Status JobQueries::CheckSees(const Caller& caller, const std::string& job_id) const {
  if (visibility_.SeesAll(caller)) return absl::OkStatus();
  if (!job_id.empty()) return Get(caller, job_id).status();
  return ToStatus({{"job_id", "",
                    "required, because this daemon shows each caller only its own jobs "
                    "(auth.own_jobs_only)"}});
}

absl::StatusOr<std::vector<StoredJob>> JobQueries::List(const Caller& caller,
                                                        const JobQuery& query) const {
  JobQuery visible = query;
  if (absl::Status status = LimitOwner(caller, visible.owner); !status.ok()) return status;
  absl::StatusOr<std::vector<StoredJob>> jobs = ledger_.view().List(visible);
  if (!jobs.ok()) return jobs;
  std::optional<std::map<std::string, QueuePlace>> places;
  for (StoredJob& each : *jobs) {
    if (each.job.state() != training::v1::JOB_STATE_QUEUED) continue;
    if (!places) places = ReadQueue();
    PutPlace(*places, each.job);
  }
  return jobs;
}

absl::StatusOr<training::v1::Checkpoint> JobQueries::GetCheckpoint(const Caller& caller,
                                                                   const std::string& id) const {
  absl::StatusOr<training::v1::Checkpoint> checkpoint = ledger_.view().GetCheckpoint(id);
  const bool hidden = checkpoint.ok() && !visibility_.Sees(caller, checkpoint->owner());
  return absl::IsNotFound(checkpoint.status()) || hidden ? NoSuchCheckpoint(id) : checkpoint;
}

absl::StatusOr<training::v1::StatsResponse> JobQueries::Stats(
    const Caller& caller, const training::v1::StatsRequest& request) const {
  const absl::StatusOr<absl::Duration> length = WindowLength(request);
  if (!length.ok()) return length.status();
  if (!request.job_id().empty()) return StatsOf(caller, request.job_id(), *length);
  training::v1::StatsResponse stats = Stats();
  *stats.mutable_window() = stats_.Window(*length, clock_.Steady());
  for (const auto& [mode, bytes] : stats_.DeviceMemory()) {
    (*stats.mutable_device_memory_bytes())[mode] = bytes;
  }
  return stats;
}

absl::StatusOr<training::v1::StatsResponse> JobQueries::StatsOf(const Caller& caller,
                                                                const std::string& job_id,
                                                                absl::Duration length) const {
  const absl::StatusOr<Job> job = Get(caller, job_id);
  if (!job.ok()) return job.status();
  const training::v1::Progress& progress = job->progress();
  training::v1::StatsResponse stats;
  stats.set_fp16_enabled_runtime(IsReducedPrecision(job->precision().mode()));
  stats.set_training_steps(progress.step());
  stats.set_samples(progress.samples());
  if (HasLossScale(job->precision().mode())) stats.set_current_scale(progress.loss_scale());
  stats.set_overflow_rate(OverflowRate(progress).value_or(0));
  *stats.mutable_window() = stats_.WindowOf(job_id, length, clock_.Steady());
  for (training::v1::HistoryPoint& point : stats_.HistoryOf(job_id)) {
    *stats.add_history() = std::move(point);
  }
  return stats;
}

std::vector<training::v1::HistoryRow> JobQueries::HistoryRows() const {
  const absl::Time now = clock_.Now();
  const bool enabled = precision_.gate().enabled;
  std::vector<training::v1::HistoryRow> rows;
  for (const JobView::Shown& each : ledger_.view().InMemory()) {
    const Job& job = each.snapshot->job;
    if (!IsOnWorker(job.state())) continue;
    rows.push_back(MakeHistoryRow(job, enabled, stats_.DeviceMemoryOf(job.id()), now));
  }
  return rows;
}

training::v1::StatsResponse JobQueries::Stats() const {
  training::v1::StatsResponse stats;
  PutWhatRuns(ledger_.view(), stats_.newest_step_reduced() && precision_.gate().enabled, stats);
  const StepTotals totals = stats_.Totals();
  stats.set_overflow_rate(totals.OverflowRate());
  stats.set_training_steps(totals.steps);
  stats.set_samples(totals.samples);
  for (const JobState state : AllJobStates())
    (*stats.mutable_jobs_by_state())[ShortEnumName(state)];
  for (const auto& [state, count] : ledger_.view().CountsByState()) {
    (*stats.mutable_jobs_by_state())[ShortEnumName(state)] = count;
  }
  const WorkerCounts workers = workers_->counts();
  stats.set_busy_workers(workers.busy);
  stats.set_warm_workers(workers.warm);
  stats.set_slots(workers_->slots());
  return stats;
}

absl::Status JobQueries::Watch(const Caller& caller, const std::string& job_id,
                               const std::shared_ptr<JobWatcher>& watcher) {
  // Subscribe before reading the job, so that no change in between is missed.
  ledger_.hub().Subscribe(job_id, watcher);
  const absl::StatusOr<std::shared_ptr<const JobSnapshot>> snapshot =
      ledger_.view().Snapshot(job_id);
  if (snapshot.ok() && *snapshot != nullptr && visibility_.Sees(caller, (*snapshot)->job.owner())) {
    watcher->Notify(*snapshot, {});
    return absl::OkStatus();
  }
  ledger_.hub().Unsubscribe(job_id, watcher.get());
  return snapshot.ok() ? NoSuchJob(job_id) : snapshot.status();
}

void JobQueries::Unwatch(const std::string& job_id, const JobWatcher* watcher) {
  ledger_.hub().Unsubscribe(job_id, watcher);
}

}  // namespace genesis
