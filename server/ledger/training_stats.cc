#include "server/ledger/training_stats.h"

#include <algorithm>

#include "config/precision/precision.h"

namespace genesis {
namespace {

constexpr absl::Duration kKept = absl::Hours(1);
constexpr size_t kMaxPoints = 256;
constexpr size_t kMaxJobs = 64;

}  // namespace

void StepTotals::Add(const training::v1::Steps& more) {
  steps += more.new_steps();
  samples += more.new_samples();
  reduced_precision_steps += more.new_reduced_precision_steps();
  overflow_steps += more.new_overflow_steps();
}

double StepTotals::OverflowRate() const {
  if (reduced_precision_steps == 0) return 0;
  return static_cast<double>(overflow_steps) / static_cast<double>(reduced_precision_steps);
}

void TotalsHistory::Sample(const StepTotals& totals, absl::Time now) {
  if (!moments_.empty() && now - moments_.back().time < resolution_) return;
  moments_.push_back({now, totals});
  while (now - moments_.front().time > kKept) moments_.pop_front();
}

training::v1::StatsWindow TotalsHistory::Window(const StepTotals& totals, absl::Duration length,
                                                absl::Time now) const {
  training::v1::StatsWindow window;
  if (moments_.empty()) return window;
  // Use the newest sample that is old enough, otherwise the oldest one.
  const auto begin =
      std::upper_bound(moments_.begin(), moments_.end(), now - length,
                       [](absl::Time time, const Moment& moment) { return time < moment.time; });
  const Moment& from = begin == moments_.begin() ? moments_.front() : *std::prev(begin);
  window.set_seconds(absl::ToDoubleSeconds(now - from.time));
  const StepTotals since = {.steps = totals.steps - from.totals.steps,
                            .samples = totals.samples - from.totals.samples,
                            .reduced_precision_steps = totals.reduced_precision_steps -
                                                       from.totals.reduced_precision_steps,
                            .overflow_steps = totals.overflow_steps - from.totals.overflow_steps};
  window.set_steps(since.steps);
  window.set_samples(since.samples);
  window.set_reduced_precision_steps(since.reduced_precision_steps);
  window.set_skipped_steps(since.overflow_steps);
  window.set_overflow_rate(since.OverflowRate());
  if (window.seconds() > 0) {
    window.set_samples_per_second(static_cast<double>(window.samples()) / window.seconds());
  }
  return window;
}

TrainingStats::JobStats& TrainingStats::StatsOf(const std::string& job_id) {
  if (!jobs_.contains(job_id) && jobs_.size() >= kMaxJobs) {
    jobs_.erase(std::min_element(jobs_.begin(), jobs_.end(), [](const auto& a, const auto& b) {
      return a.second.last_use < b.second.last_use;
    }));
  }
  JobStats& stats = jobs_[job_id];
  stats.last_use = ++uses_;
  return stats;
}

void TrainingStats::ShowRunning() {
  RunningStatistics statistics = running_.Statistics();
  if (!names_jobs_) statistics.jobs.clear();
  metrics_->ShowRunning(statistics);
}

void TrainingStats::NoteBegin(const std::string& job_id,
                              const training::v1::EffectivePrecision& precision,
                              int64_t fp32_peak_bytes) {
  absl::MutexLock lock(&mutex_);
  running_.Begin(job_id, precision, fp32_peak_bytes);
  ShowRunning();
}

void TrainingStats::NotePrecision(const std::string& job_id,
                                  const training::v1::EffectivePrecision& precision) {
  absl::MutexLock lock(&mutex_);
  running_.SetPrecision(job_id, precision);
  ShowRunning();
}

void TrainingStats::NoteSteps(const std::string& job_id, const training::v1::Steps& steps,
                              training::v1::PrecisionMode mode, absl::Time now) {
  absl::MutexLock lock(&mutex_);
  JobStats& job = StatsOf(job_id);
  job.history.Sample(job.totals, now);
  totals_.Add(steps);
  job.totals.Add(steps);
  if (steps.new_steps() > 0) newest_step_reduced_ = IsReducedPrecision(mode);
  running_.NoteSteps(job_id, steps, mode);
  metrics_->Steps(steps, mode);
  ShowRunning();
  if (job.reports++ % job.stride != 0) return;
  training::v1::HistoryPoint& point = job.points.emplace_back();
  point.set_step(steps.progress().step());
  point.set_loss(steps.progress().loss());
  point.set_loss_scale(steps.progress().loss_scale());
  point.set_samples_per_second(steps.progress().samples_per_second());
  point.set_mode(mode);
  if (job.points.size() < kMaxPoints) return;
  // Drop every other point, so that the points stay evenly spaced over the whole job.
  for (size_t i = 0; i < kMaxPoints / 2; ++i) job.points[i] = job.points[2 * i];
  job.points.resize(kMaxPoints / 2);
  job.stride *= 2;
}

void TrainingStats::NoteHeldOut(const std::string& job_id, double loss) {
  absl::MutexLock lock(&mutex_);
  running_.NoteHeldOut(job_id, loss);
  ShowRunning();
}

void TrainingStats::NoteWait(const std::string& job_id, double ratio) {
  absl::MutexLock lock(&mutex_);
  running_.NoteWait(job_id, ratio);
  ShowRunning();
}

void TrainingStats::NoteLeave(const std::string& job_id) {
  absl::MutexLock lock(&mutex_);
  running_.End(job_id);
  ShowRunning();
}

void TrainingStats::Forget(const std::string& job_id) {
  absl::MutexLock lock(&mutex_);
  jobs_.erase(job_id);
}

void TrainingStats::NoteSuccess(double seconds) {
  constexpr double kWeight = 0.25;  // Weight of the newest job.
  absl::MutexLock lock(&mutex_);
  const double before = expected_job_seconds_;
  expected_job_seconds_ = before == 0 ? seconds : before + kWeight * (seconds - before);
}

bool TrainingStats::newest_step_reduced() const {
  absl::MutexLock lock(&mutex_);
  return newest_step_reduced_;
}

double TrainingStats::expected_job_seconds() const {
  absl::MutexLock lock(&mutex_);
  return expected_job_seconds_;
}

void TrainingStats::Sample(absl::Time now) {
  absl::MutexLock lock(&mutex_);
  history_.Sample(totals_, now);
}

StepTotals TrainingStats::Totals() const {
  absl::MutexLock lock(&mutex_);
  return totals_;
}

training::v1::StatsWindow TrainingStats::Window(absl::Duration length, absl::Time now) const {
  absl::MutexLock lock(&mutex_);
  return history_.Window(totals_, length, now);
}

training::v1::StatsWindow TrainingStats::WindowOf(const std::string& job_id, absl::Duration length,
                                                  absl::Time now) const {
  absl::MutexLock lock(&mutex_);
  const auto job = jobs_.find(job_id);
  if (job == jobs_.end()) return {};
  return job->second.history.Window(job->second.totals, length, now);
}

std::vector<training::v1::HistoryPoint> TrainingStats::HistoryOf(const std::string& job_id) const {
  absl::MutexLock lock(&mutex_);
  const auto job = jobs_.find(job_id);
  if (job == jobs_.end()) return {};
  return job->second.points;
}

std::optional<int64_t> TrainingStats::DeviceMemoryOf(const std::string& job_id) const {
  absl::MutexLock lock(&mutex_);
  return running_.AllocatedBy(job_id);
}

std::map<std::string, int64_t> TrainingStats::DeviceMemory() const {
  absl::MutexLock lock(&mutex_);
  std::map<std::string, int64_t> bytes;
  for (const auto& [label, memory] : running_.Statistics().memory) bytes[label] = memory.allocated;
  return bytes;
}

}  // namespace genesis
