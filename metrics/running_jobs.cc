#include "metrics/running_jobs.h"

#include <algorithm>
#include <cmath>
#include <tuple>

#include "config/precision/precision.h"

namespace genesis {

void RunningJobs::Begin(const std::string& job_id,
                        const training::v1::EffectivePrecision& precision,
                        int64_t fp32_peak_bytes) {
  jobs_[job_id] = {.mode = precision.mode(),
                   .device = precision.device(),
                   .fp32_peak_bytes = fp32_peak_bytes,
                   .report = 0,
                   .progress = {},
                   .held_out_loss = std::nullopt,
                   .memory = std::nullopt,
                   .wait_ratio = std::nullopt,
                   .steps = 0,
                   .overflow_steps = 0};
}

void RunningJobs::SetPrecision(const std::string& job_id,
                               const training::v1::EffectivePrecision& precision) {
  Job& job = jobs_[job_id];
  job.mode = precision.mode();
  job.device = precision.device();
}

void RunningJobs::NoteSteps(const std::string& job_id, const training::v1::Steps& steps,
                            training::v1::PrecisionMode mode) {
  Job& job = jobs_[job_id];
  job.mode = mode;
  job.steps += steps.new_steps();
  job.overflow_steps += steps.new_overflow_steps();
  if (steps.has_cuda_memory_allocated_bytes()) {
    job.memory = {steps.cuda_memory_allocated_bytes(), steps.cuda_memory_reserved_bytes(),
                  steps.cuda_memory_peak_bytes()};
  }
  // Before the first step, loss and norm are not measured, and 0 would look perfect.
  if (steps.progress().step() <= 0) return;
  job.progress = steps.progress();
  job.report = ++reports_;
}

void RunningJobs::NoteHeldOut(const std::string& job_id, double loss) {
  jobs_[job_id].held_out_loss = loss;
}

void RunningJobs::NoteWait(const std::string& job_id, double ratio) {
  jobs_[job_id].wait_ratio = ratio;
}

void RunningJobs::End(const std::string& job_id) { jobs_.erase(job_id); }

std::optional<int64_t> RunningJobs::AllocatedBy(const std::string& job_id) const {
  const auto job = jobs_.find(job_id);
  if (job == jobs_.end() || !job->second.memory) return std::nullopt;
  return job->second.memory->allocated;
}

bool RunningJobs::IsBefore(const Job& a, const Job& b) {
  const auto rank = [](const Job& job) {
    const training::v1::Progress& progress = job.progress;
    const double divergence =
        progress.has_divergence_ratio() ? std::abs(progress.divergence_ratio()) : -1;
    return std::tuple(job.report > 0, job.report > 0 && !std::isfinite(progress.loss()), divergence,
                      job.report);
  };
  return rank(a) < rank(b);
}

std::vector<JobStatistics> RunningJobs::ByJob() const {
  std::vector<const std::pair<const std::string, Job>*> shown;
  shown.reserve(jobs_.size());
  for (const auto& each : jobs_) shown.push_back(&each);
  if (shown.size() > RunningStatistics::kMaxJobs) {
    std::partial_sort(shown.begin(), shown.begin() + RunningStatistics::kMaxJobs, shown.end(),
                      [](const auto* a, const auto* b) { return IsBefore(b->second, a->second); });
    shown.resize(RunningStatistics::kMaxJobs);
  }
  std::vector<JobStatistics> statistics;
  for (const auto* each : shown) {
    const auto& [id, job] = *each;
    const training::v1::Progress& progress = job.progress;
    JobStatistics& of_job = statistics.emplace_back(
        JobStatistics{.job_id = id, .steps = job.steps, .overflow_steps = job.overflow_steps});
    of_job.wait_ratio = job.wait_ratio;
    if (job.report == 0) continue;
    of_job.loss = progress.loss();
    if (progress.has_divergence_ratio()) of_job.divergence = progress.divergence_ratio();
    if (progress.has_speed_ratio()) of_job.speed_ratio = progress.speed_ratio();
  }
  return statistics;
}

RunningStatistics RunningJobs::Statistics() const {
  RunningStatistics statistics;
  statistics.jobs = ByJob();
  const Job* shown = nullptr;
  int64_t newest_scale = 0;
  int64_t newest_held_out = 0;
  for (const auto& [id, job] : jobs_) {
    if (job.mode != training::v1::PRECISION_MODE_UNSPECIFIED) {
      statistics.precisions.emplace(PrecisionLabel(job.mode), job.device);
    }
    if (shown == nullptr || IsBefore(*shown, job)) shown = &job;
    if (job.report > newest_scale && HasLossScale(job.mode)) {
      newest_scale = job.report;
      statistics.loss_scale = job.progress.loss_scale();
    }
    if (job.held_out_loss && job.report >= newest_held_out) {
      newest_held_out = job.report;
      statistics.held_out_loss = job.held_out_loss;
    }
    if (job.report > 0 && job.progress.has_speed_ratio()) {
      statistics.speed_ratio = std::min(statistics.speed_ratio.value_or(job.progress.speed_ratio()),
                                        job.progress.speed_ratio());
    }
    if (job.wait_ratio) {
      statistics.wait_ratio = std::max(statistics.wait_ratio.value_or(0), *job.wait_ratio);
    }
    if (!job.memory) continue;
    AllocatorMemory& memory = statistics.memory[PrecisionLabel(job.mode)];
    memory.allocated += job.memory->allocated;
    memory.reserved += job.memory->reserved;
    memory.peak += job.memory->peak;
    if (job.fp32_peak_bytes > 0 && IsReducedPrecision(job.mode)) {
      const double ratio =
          static_cast<double>(job.memory->peak) / static_cast<double>(job.fp32_peak_bytes);
      statistics.memory_ratio = std::max(statistics.memory_ratio.value_or(0), ratio);
    }
  }
  if (shown == nullptr || shown->report == 0) return statistics;
  const training::v1::Progress& progress = shown->progress;
  statistics.loss = progress.loss();
  statistics.grad_norm = progress.grad_norm();
  if (progress.baseline_loss() > 0 && progress.has_divergence_ratio()) {
    statistics.baseline_loss = progress.baseline_loss();
    statistics.divergence = progress.divergence_ratio();
    if (std::isfinite(progress.loss())) {
      statistics.loss = progress.baseline_loss() * (1 + progress.divergence_ratio());
    }
  }
  return statistics;
}

}  // namespace genesis
