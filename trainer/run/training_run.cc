#include "trainer/run/training_run.h"

#include <c10/core/CachingDeviceAllocator.h>

#include <chrono>
#include <cmath>
#include <filesystem>
#include <memory>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "config/precision.h"
#include "config/timestamp.h"
#include "trainer/checkpoint/checkpoint_folder.h"
#include "trainer/checkpoint/checkpoint_reader.h"
#include "trainer/checkpoint/checkpoint_writer.h"
#include "trainer/data/trajectory_dataset.h"
#include "trainer/run/held_out_error.h"
#include "trainer/run/run_failure.h"
#include "trainer/run/step_reporter.h"
#include "trainer/run/threads.h"
#include "trainer/run/trainee.h"

namespace genesis {
namespace {

using training::v1::CheckpointWritten;
using training::v1::Finished;
using training::v1::Progress;
using training::v1::StartJob;

// A loss scale that fell this far cannot be what keeps gradients from overflowing.
constexpr double kLowestLossScale = 1.0 / (1 << 20);

double Seconds(std::chrono::steady_clock::time_point since) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - since).count();
}

int64_t TotalSteps(const training::v1::TrainingSpec& training, int64_t batches_per_epoch) {
  if (training.max_steps() > 0) return training.max_steps();
  const int64_t batches = training.epochs() * batches_per_epoch;
  return std::max<int64_t>(1, batches / training.gradient_accumulation_steps());
}

// One attempt at one job.
class Run {
 public:
  Run(const StartJob& start, RunControl& control, RunObserver& observer)
      : start_(start),
        control_(control),
        observer_(observer),
        folder_(start.checkpoint_dir(), start.job_id()) {}

  Finished Execute() {
    Prepare();
    Resume();
    StartReports();
    const bool completed = MakeSteps();
    return completed ? Complete() : Stop();
  }

  const Progress& progress() const { return reporter_ ? reporter_->progress() : progress_; }

 private:
  void Prepare() {
    absl::StatusOr<TrajectoryDataset> dataset =
        LoadTrajectories(start_.spec().dataset().trajectories());
    Require(dataset.status(), training::v1::FAILURE_CAUSE_DATA);
    dataset_ = *std::move(dataset);
    const int64_t batch = start_.spec().training().batch_size();
    if (batch > dataset_.training_size) {
      throw RunFailure{
          training::v1::FAILURE_CAUSE_CONFIG,
          absl::StrCat("training.batch_size is ", batch, "; accepted for this dataset: 1 to ",
                       dataset_.training_size, ", the transitions that it trains on")};
    }
    Require(folder_.Prepare(), training::v1::FAILURE_CAUSE_CHECKPOINT);
    observer_.OnLog(absl::StrCat("data: ", dataset_.training_size, " transitions of ",
                                 dataset_.training_episodes, " episodes to train on, ",
                                 dataset_.size - dataset_.training_size, " of ",
                                 dataset_.episodes - dataset_.training_episodes, " held out"));
    trainee_ = std::make_unique<Trainee>(start_, dataset_);
    if (!trainee_->device().is_cuda()) threads_.emplace(trainee_->OperationsPerPass());
    total_steps_ = TotalSteps(start_.spec().training(), trainee_->source().batches_per_epoch());
  }

  // Takes the first checkpoint of resume_from that is whole and of this model.
  void Resume() {
    absl::Status last;
    for (const std::string& path : start_.resume_from()) {
      const absl::StatusOr<TrainingState> state = ReadCheckpoint(path);
      last = state.status();
      if (state.ok()) last = trainee_->PutState(*state);
      if (last.ok()) {
        TakePosition(state->position);
        observer_.OnLog(absl::StrCat("resumed from ", path, " at step ", step_));
        return;
      }
      observer_.OnLog(absl::StrCat("checkpoint ", path, " cannot be used: ", last.message()));
    }
    if (!last.ok()) {
      throw RunFailure{training::v1::FAILURE_CAUSE_CHECKPOINT,
                       absl::StrCat("none of ", start_.resume_from_size(),
                                    " checkpoints can be used; the last: ", last.message())};
    }
  }

  void TakePosition(const RunPosition& position) {
    step_ = position.step;
    saved_step_ = position.step;
    progress_.set_step(position.step);
    progress_.set_loss(position.loss);
    progress_.set_samples(position.samples);
    progress_.set_skipped_steps(position.skipped_steps);
    progress_.set_reduced_precision_steps(position.reduced_precision_steps);
  }

  void StartReports() {
    progress_.set_total_steps(total_steps_);
    progress_.set_loss_scale(1);
    const training::v1::TrainingSpec& training = start_.spec().training();
    StepReporter::Options options;
    options.samples_per_step =
        int64_t{training.batch_size()} * training.gradient_accumulation_steps();
    options.reduced_precision = IsReducedPrecision(start_.precision().mode());
    if (trainee_->device().is_cuda()) {
      options.device_memory = [device = trainee_->device()] {
        const auto stats = at::getDeviceAllocator(at::kCUDA)->getDeviceStats(device.index());
        return stats
            .allocated_bytes[static_cast<size_t>(c10::CachingAllocator::StatType::AGGREGATE)]
            .current;
      };
    }
    training::v1::Started started;
    started.set_total_steps(total_steps_);
    started.set_resumed_step(step_);
    observer_.OnStarted(started);
    reporter_.emplace(observer_, progress_, options);
  }

  // True when all steps are made, false when a stop was asked for.
  bool MakeSteps() {
    const int64_t every = start_.spec().checkpoint().every_steps();
    for (int64_t made = 0;; ++made) {
      // A stop is asked for after its checkpoint, so it is looked for before it.
      const bool stop = control_.stop_requested();
      if (control_.TakeCheckpointRequest()) SaveOnRequest();
      if (step_ >= total_steps_) return true;
      if (stop) return false;
      const auto begin = std::chrono::steady_clock::now();
      trainee_->step().Run();
      ++step_;
      // The figures of the step before, long there; the first step's at once, so that whoever
      // watches sees the job move.
      if (made == 0) {
        Absorb(Seconds(begin));
      } else if (trainee_->step().unread() == 2) {
        Absorb(step_seconds_);
      }
      step_seconds_ = Seconds(begin);
      if (every > 0 && step_ % every == 0) Save();
    }
  }

  // Takes in the figures of the oldest unread step.
  void Absorb(double seconds) {
    const StepFigures figures = trainee_->step().Read();
    const int64_t step = step_ - trainee_->step().unread();
    const bool scaled = start_.precision().mode() == training::v1::PRECISION_MODE_MIXED_FP16;
    const bool excusable = scaled && figures.skipped;
    if (!excusable && !std::isfinite(figures.loss)) FailNonFinite("loss", figures.loss, step);
    if (!excusable && figures.skipped) FailNonFinite("gradient norm", figures.grad_norm, step);
    reporter_->Add({.step = step,
                    .loss = figures.loss,
                    .grad_norm = figures.grad_norm,
                    .loss_scale = figures.loss_scale,
                    .skipped = figures.skipped},
                   figures.next_loss_scale, seconds);
    if (scaled && figures.next_loss_scale < kLowestLossScale) {
      throw RunFailure{
          training::v1::FAILURE_CAUSE_NON_FINITE,
          absl::StrFormat("gradients overflow at step %d although the loss scale fell to %g; the "
                          "loss is %g; train in MIXED_BF16 or FP32, or lower "
                          "optimizer.learning_rate",
                          step, figures.next_loss_scale, figures.loss)};
    }
  }

  [[noreturn]] void FailNonFinite(const char* what, double value, int64_t step) const {
    throw RunFailure{training::v1::FAILURE_CAUSE_NON_FINITE,
                     absl::StrFormat("the %s became %g at step %d in %s; lower "
                                     "optimizer.learning_rate (it is %g) or look for outliers in "
                                     "the dataset",
                                     what, value, step, PrecisionName(start_.precision().mode()),
                                     start_.spec().optimizer().learning_rate())};
  }

  // Sync: waits for the newest step.
  void AbsorbAll() {
    while (trainee_->step().unread() > 0) Absorb(step_seconds_);
    reporter_->Flush();
  }

  void SaveOnRequest() {
    if (written_ && written_->checkpoint().step() == step_) {
      // Whoever asks waits for an answer, and the file is there already.
      observer_.OnCheckpoint(*written_);
    } else {
      Save();
    }
  }

  void Save() {
    AbsorbAll();
    const auto begin = std::chrono::steady_clock::now();
    const Progress& progress = reporter_->progress();
    const TrainingState state =
        trainee_->TakeState({.step = step_,
                             .samples = progress.samples(),
                             .skipped_steps = progress.skipped_steps(),
                             .reduced_precision_steps = progress.reduced_precision_steps(),
                             .sampler = {},
                             .seed = 0,
                             .loss = progress.loss(),
                             .mode = start_.precision().mode()});
    if (const std::string name = FirstNonFinite(state); !name.empty()) {
      throw RunFailure{training::v1::FAILURE_CAUSE_NON_FINITE,
                       absl::StrCat(name, " is not finite after step ", step_,
                                    "; lower optimizer.learning_rate")};
    }
    const std::string path = folder_.Path(step_);
    const absl::StatusOr<int64_t> size = WriteCheckpoint(state, path);
    Require(size.status(), training::v1::FAILURE_CAUSE_CHECKPOINT);
    saved_step_ = step_;
    written_ = Describe(path, *size);
    for (std::string& id : folder_.Retain(start_.spec().checkpoint().keep_last(), step_)) {
      written_->add_removed_ids(std::move(id));
    }
    written_->set_seconds(Seconds(begin));
    observer_.OnCheckpoint(*written_);
  }

  CheckpointWritten Describe(const std::string& path, int64_t size) const {
    CheckpointWritten written;
    training::v1::Checkpoint& checkpoint = *written.mutable_checkpoint();
    checkpoint.set_id(folder_.Id(step_));
    checkpoint.set_job_id(start_.job_id());
    checkpoint.set_step(step_);
    checkpoint.set_path(path);
    checkpoint.set_size_bytes(size);
    checkpoint.set_loss(progress().loss());
    checkpoint.set_mode(start_.precision().mode());
    *checkpoint.mutable_create_time() = TimestampNow();
    return written;
  }

  Finished Complete() {
    AbsorbAll();
    if (saved_step_ != step_) Save();
    Finished finished;
    finished.set_outcome(Finished::OUTCOME_COMPLETED);
    *finished.mutable_held_out() =
        MeasureHeldOutError(trainee_->model(), dataset_, trainee_->device());
    *finished.mutable_progress() = progress();
    observer_.OnLog(absl::StrFormat(
        "training complete: job %s, %d steps, loss %.6g, held-out error %.4g (persistence %.4g, "
        "mean %.4g)",
        start_.job_id(), step_, progress().loss(), finished.held_out().model(),
        finished.held_out().persistence(), finished.held_out().mean()));
    return finished;
  }

  Finished Stop() {
    AbsorbAll();
    observer_.OnLog(absl::StrCat("stopped at step ", step_, " of ", total_steps_));
    Finished finished;
    finished.set_outcome(Finished::OUTCOME_STOPPED);
    *finished.mutable_progress() = progress();
    return finished;
  }

  const StartJob& start_;
  RunControl& control_;
  RunObserver& observer_;
  CheckpointFolder folder_;
  TrajectoryDataset dataset_;
  std::unique_ptr<Trainee> trainee_;
  std::optional<ThreadLimit> threads_;
  std::optional<StepReporter> reporter_;
  Progress progress_;  // Of the attempts before.
  int64_t total_steps_ = 0;
  int64_t step_ = 0;         // Made, their figures read or not.
  int64_t saved_step_ = -1;  // Of the newest checkpoint that this run wrote or came from.
  std::optional<CheckpointWritten> written_;
  double step_seconds_ = 0;
};

Finished Fail(const RunFailure& failure, const Progress& progress, RunObserver& observer) {
  observer.OnLog(absl::StrCat("training failed: ", failure.message));
  Finished finished;
  finished.set_outcome(Finished::OUTCOME_FAILED);
  finished.mutable_failure()->set_cause(failure.cause);
  finished.mutable_failure()->set_message(failure.message);
  *finished.mutable_progress() = progress;
  return finished;
}

}  // namespace

Finished RunTraining(const StartJob& start, RunControl& control, RunObserver& observer) {
  Run run(start, control, observer);
  try {
    return run.Execute();
  } catch (const RunFailure& failure) {
    return Fail(failure, run.progress(), observer);
  } catch (const std::exception& error) {
    return Fail(ExplainException(error), run.progress(), observer);
  }
}

}  // namespace genesis
