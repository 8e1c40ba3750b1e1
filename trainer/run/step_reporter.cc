#include "trainer/run/step_reporter.h"

#include <utility>

#include "config/precision/precision.h"

namespace genesis {
namespace {

constexpr std::chrono::milliseconds kInterval{100};

}  // namespace

StepReporter::StepReporter(RunObserver& observer, const training::v1::Progress& progress,
                           Options options)
    : observer_(observer),
      options_(std::move(options)),
      progress_(progress),
      seconds_before_(progress.seconds()),
      start_(options_.clock()) {}

void StepReporter::Add(StepRecord record, double next_loss_scale, double baseline_loss,
                       double seconds) {
  const Time now = options_.clock();
  progress_.set_step(record.step);
  progress_.set_loss(record.loss);
  progress_.set_grad_norm(record.grad_norm);
  progress_.set_loss_scale(next_loss_scale);
  progress_.set_learning_rate(record.learning_rate);
  progress_.set_mode(record.mode);
  progress_.set_baseline_loss(baseline_loss);
  progress_.clear_divergence_ratio();
  if (record.divergence) progress_.set_divergence_ratio(*record.divergence);
  progress_.clear_speed_ratio();
  if (record.speed) progress_.set_speed_ratio(*record.speed);
  progress_.set_samples(progress_.samples() + options_.samples_per_step);
  samples_since_start_ += options_.samples_per_step;
  const int64_t seen = progress_.next_transition() - progress_.first_transition();
  if (seen > 0) {
    progress_.set_samples_per_insert(static_cast<double>(progress_.samples()) /
                                     static_cast<double>(seen));
  }
  record.samples = progress_.samples();
  record.step_seconds = seconds;
  record.training_seconds = seconds_before_ + std::chrono::duration<double>(now - start_).count();
  record.memory_bytes = memory_bytes_;
  observer_.OnStep(record);

  pending_.set_new_steps(pending_.new_steps() + 1);
  pending_.set_new_samples(pending_.new_samples() + options_.samples_per_step);
  pending_.add_step_seconds(static_cast<float>(seconds));
  const bool reduced = IsReducedPrecision(record.mode);
  if (reduced) {
    progress_.set_reduced_precision_steps(progress_.reduced_precision_steps() + 1);
    pending_.set_new_reduced_precision_steps(pending_.new_reduced_precision_steps() + 1);
  }
  if (record.skipped) {
    progress_.set_skipped_steps(progress_.skipped_steps() + 1);
    pending_.set_new_skipped_steps(pending_.new_skipped_steps() + 1);
  }
  // A non-finite batch makes FP32 skip a step too, but that is not an overflow.
  const int overflowed = record.skipped && reduced ? 1 : 0;
  progress_.set_overflow_steps(progress_.overflow_steps() + overflowed);
  pending_.set_new_overflow_steps(pending_.new_overflow_steps() + overflowed);
  if (next_loss_scale > record.loss_scale) {
    pending_.set_new_scale_growths(pending_.new_scale_growths() + 1);
  }
  if (next_loss_scale < record.loss_scale) {
    progress_.set_scale_backoffs(progress_.scale_backoffs() + 1);
    pending_.set_new_scale_backoffs(pending_.new_scale_backoffs() + 1);
  }
  if (!last_report_ || now - *last_report_ >= kInterval) Flush();
}

void StepReporter::NoteTransitions(uint64_t first, uint64_t next) {
  progress_.set_first_transition(static_cast<int64_t>(first));
  progress_.set_next_transition(static_cast<int64_t>(next));
}

void StepReporter::Rewind(training::v1::Progress progress) {
  Flush();
  progress.set_total_steps(progress_.total_steps());
  progress.set_seconds(progress_.seconds());
  progress_ = std::move(progress);
}

double StepReporter::seconds() const {
  return seconds_before_ + std::chrono::duration<double>(options_.clock() - start_).count();
}

void StepReporter::Flush() {
  if (pending_.new_steps() == 0) return;
  last_report_ = options_.clock();
  const double seconds = std::chrono::duration<double>(*last_report_ - start_).count();
  progress_.set_seconds(seconds_before_ + seconds);
  if (seconds > 0) {
    progress_.set_samples_per_second(static_cast<double>(samples_since_start_) / seconds);
  }
  *pending_.mutable_progress() = progress_;
  if (options_.device_memory) {
    const DeviceMemory memory = options_.device_memory();
    memory_bytes_ = memory.allocated;
    pending_.set_cuda_memory_allocated_bytes(memory.allocated);
    pending_.set_cuda_memory_reserved_bytes(memory.reserved);
    pending_.set_cuda_memory_peak_bytes(memory.peak);
  }
  if (options_.wait_seconds) pending_.set_wait_seconds(options_.wait_seconds());
  observer_.OnSteps(pending_);
  pending_.Clear();
}

}  // namespace genesis
