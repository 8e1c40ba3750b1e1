#include "trainer/run/step_reporter.h"

#include <utility>

namespace genesis {
namespace {

constexpr std::chrono::milliseconds kInterval{100};

}  // namespace

StepReporter::StepReporter(RunObserver& observer, const training::v1::Progress& progress,
                           Options options)
    : observer_(observer),
      options_(std::move(options)),
      progress_(progress),
      samples_before_(progress.samples()),
      start_(options_.clock()) {}

void StepReporter::Add(StepRecord record, double next_loss_scale, double seconds) {
  progress_.set_step(record.step);
  progress_.set_loss(record.loss);
  progress_.set_grad_norm(record.grad_norm);
  progress_.set_loss_scale(next_loss_scale);
  progress_.set_samples(progress_.samples() + options_.samples_per_step);
  record.samples = progress_.samples();
  observer_.OnStep(record);

  pending_.set_new_steps(pending_.new_steps() + 1);
  pending_.set_new_samples(pending_.new_samples() + options_.samples_per_step);
  pending_.add_step_seconds(static_cast<float>(seconds));
  if (options_.reduced_precision) {
    progress_.set_reduced_precision_steps(progress_.reduced_precision_steps() + 1);
    pending_.set_new_reduced_precision_steps(pending_.new_reduced_precision_steps() + 1);
  }
  if (record.skipped) {
    progress_.set_skipped_steps(progress_.skipped_steps() + 1);
    pending_.set_new_skipped_steps(pending_.new_skipped_steps() + 1);
  }
  if (next_loss_scale > record.loss_scale) {
    pending_.set_new_scale_growths(pending_.new_scale_growths() + 1);
  }
  if (!last_report_ || options_.clock() - *last_report_ >= kInterval) Flush();
}

void StepReporter::Flush() {
  if (pending_.new_steps() == 0) return;
  last_report_ = options_.clock();
  const double seconds = std::chrono::duration<double>(*last_report_ - start_).count();
  const auto samples = static_cast<double>(progress_.samples() - samples_before_);
  if (seconds > 0) progress_.set_samples_per_second(samples / seconds);
  *pending_.mutable_progress() = progress_;
  if (options_.device_memory) {
    pending_.set_cuda_memory_allocated_bytes(options_.device_memory());
  }
  observer_.OnSteps(pending_);
  pending_.Clear();
}

}  // namespace genesis
