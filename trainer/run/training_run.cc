#include "trainer/run/training_run.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <memory>
#include <optional>
#include <thread>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "base/program_dir.h"
#include "config/precision/precision.h"
#include "trainer/cuda/cuda_plugin.h"
#include "trainer/data/dataset.h"
#include "trainer/distributed/rank_group.h"
#include "trainer/guard/precision_guard.h"
#include "trainer/models/exported/batch_size.h"
#include "trainer/run/evaluator.h"
#include "trainer/run/following.h"
#include "trainer/run/log_lines.h"
#include "trainer/run/precision_choice.h"
#include "trainer/run/run_agreement.h"
#include "trainer/run/run_checkpoints.h"
#include "trainer/run/same_inputs.h"
#include "trainer/run/step_reporter.h"
#include "trainer/run/step_trace.h"
#include "trainer/run/weights_publisher.h"
#include "trainer/runtime/device.h"
#include "trainer/runtime/device_memory.h"
#include "trainer/runtime/idle_threads.h"
#include "trainer/runtime/job_files.h"
#include "trainer/runtime/processor_clock.h"
#include "trainer/runtime/run_failure.h"
#include "trainer/runtime/threads.h"
#include "trainer/step/training_session.h"

namespace genesis {
namespace {

using training::v1::Finished;
using training::v1::PrecisionMode;
using training::v1::Progress;
using training::v1::StartJob;

double Seconds(std::chrono::steady_clock::time_point since) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - since).count();
}

// One attempt at one job on one rank.
class Run {
 public:
  Run(const StartJob& start, const training::v1::DeviceInfo& device, RunControl& control,
      RunObserver& observer, RankGroup& ranks)
      : start_(start),
        device_(device),
        control_(control),
        observer_(observer),
        ranks_(ranks),
        agreement_(control, ranks),
        checkpoints_(start, control, observer, ranks),
        trace_(start, device.cuda(), observer) {}

  Finished Execute() {
    if (!OpenData()) return Stopped("before the first step, while it waited for data");
    Prepare();
    const std::optional<TrainingState> resumed =
        checkpoints_.Resume([this](const TrainingState& state) {
          return session_->PutState(state, ModeBeforeChoice(start_));
        });
    if (resumed) TakePosition(*resumed);
    if (following_) following_->Resume(progress_);
    agreement_.Begin(step_);
    session_->FollowFirstRank();
    StartReports(ChoosePrecision(start_, device_, resumed ? &*resumed : nullptr, *session_, *guard_,
                                 ranks_, observer_));
    return MakeSteps() ? Complete() : Stop();
  }

  // Returns the progress of a failed run. First reports its last steps, so that the daemon counts
  // them.
  const Progress& LastProgress() {
    if (!reporter_) return progress_;
    reporter_->Flush();
    return reporter_->progress();
  }

 private:
  // Preparation.

  // Returns false if a stop was requested while there was too little data.
  bool OpenData() {
    if (!start_.spec().dataset().replay().follow()) {
      dataset_ = OpenSameData(start_.spec(), ranks_);
      return true;
    }
    std::unique_ptr<FollowedReplay> data = OpenFollowed(start_);
    following_.emplace(start_.spec(), *data, control_, observer_, ranks_);
    dataset_ = std::move(data);
    if (!following_->AwaitEnough()) return false;
    RequireSameInputs(start_.spec(), *dataset_, ranks_);
    return true;
  }

  void Prepare() {
    const int64_t batch = start_.spec().training().batch_size();
    const int64_t most = dataset_->training_size() / ranks_.size();
    if (batch > most) {
      throw RunFailure{
          training::v1::FAILURE_CAUSE_CONFIG,
          absl::StrCat(
              "training.batch_size is ", batch, "; accepted for this dataset: 1 to ", most,
              ", the examples that it trains on",
              ranks_.alone() ? "" : absl::StrCat(", shared by ", ranks_.size(), " ranks"))};
    }
    checkpoints_.Prepare();
    observer_.OnLog("data: " + dataset_->Describe());
    SetTf32(start_.spec().precision().tf32() == training::v1::TF32_ON);
    session_ = std::make_unique<TrainingSession>(start_, *dataset_, at::Device(device_.name()),
                                                 ranks_, Graphs());
    for (const std::string& line : ModelLines(session_->model(), *dataset_, batch, ranks_.size())) {
      observer_.OnLog(line);
    }
    KeepModes(start_, [this](PrecisionMode mode) { return session_->model().supports(mode); });
    if (!session_->device().is_cuda()) {
      threads_.emplace(session_->OperationsPerPass());
      idle_threads_.emplace(at::get_num_threads());
    }
    guard_.emplace(start_, *session_, observer_);
    evaluator_.emplace(start_.spec(), *dataset_, *session_);
    weights_.emplace(start_, control_, observer_, *session_);
  }

  // Returns a CUDA graph factory if the daemon allows capture and the device supports it.
  StepGraphMaker Graphs() {
    if (!start_.cuda_graphs() || !device_.cuda()) return {};
    std::string fault;
    StepGraphMaker graphs = CudaStepGraphs(ProgramDir(), &fault);
    if (!graphs) observer_.OnLog("steps are not captured: " + fault);
    return graphs;
  }

  void TakePosition(const TrainingState& state) {
    progress_ = state.position.progress;
    step_ = progress_.step();
    evaluator_->LoadState(state.evaluation);
  }

  void StartReports(const training::v1::EffectivePrecision& precision) {
    progress_.set_total_steps(session_->total_steps());
    progress_.set_loss_scale(1);
    StepReporter::Options options;
    options.samples_per_step = ExamplesOfStep();
    if (session_->device().is_cuda()) {
      options.device_memory = [device = session_->device()] { return ReadDeviceMemory(device); };
    }
    if (!ranks_.alone()) options.wait_seconds = [this] { return ranks_.TakeWaitSeconds(); };
    training::v1::Started started;
    started.set_total_steps(session_->total_steps());
    started.set_resumed_step(step_);
    *started.mutable_precision() = precision;
    observer_.OnStarted(started);
    reporter_.emplace(observer_, progress_, options);
    all_fp32_ = step_ == 0;
  }

  // Running steps.

  int64_t ExamplesOfStep() const {
    const training::v1::TrainingSpec& training = start_.spec().training();
    return int64_t{ranks_.size()} * training.batch_size() * training.gradient_accumulation_steps();
  }

  // Returns true if the job is complete, false if a stop was requested.
  bool MakeSteps() {
    const int64_t checkpoint_every = start_.spec().checkpoint().every_steps();
    const int64_t evaluate_every = start_.spec().evaluation().every_steps();
    bool first = true;
    while (true) {
      // Callers request a checkpoint before the stop, so read the stop first.
      const bool stop = agreement_.stop();
      if (agreement_.TakeCheckpoint()) SaveOnRequest();
      if (step_ >= session_->total_steps()) AbsorbAll();  // May rewind the run.
      if (rewound_) EndRewind(/*save=*/!stop);
      if (step_ >= session_->total_steps() || EndsEarly()) return true;
      if (stop) return false;
      if (const auto reason = agreement_.TakeFp32Request()) LeaveReducedPrecision(*reason);
      if (agreement_.TakePlateau(MetricAtPlateau())) LowerRate();
      weights_->AtBoundary(step_);
      if (following_ && !MayStep()) continue;
      if (guard_->WantsGoodState(step_)) guard_->KeepGoodState(TakeState());
      if (rewound_) continue;
      MakeStep(first);
      first = false;
      session_->CheckWeights(step_);
      if (guard_->WantsTimes()) CompareSpeed();
      if (pending_) ChangePrecision();
      const bool evaluates = evaluate_every > 0 && step_ % evaluate_every == 0;
      if (evaluates && !rewound_) AbsorbAll();  // May rewind the run.
      if (rewound_) continue;
      if (evaluates) Evaluate();
      // After a stop request another worker may have the job; the request says whether to save. The
      // last step's checkpoint is written at the end, with the last held-out loss.
      const bool due = checkpoint_every > 0 && step_ % checkpoint_every == 0;
      if (due && step_ < session_->total_steps() && !agreement_.stop()) Save();
    }
  }

  // Adds new transitions of the followed buffer. Returns false if the step must not run yet.
  bool MayStep() {
    const bool may = following_->MayStep(session_->source(), ExamplesOfStep(), agreement_.news(),
                                         [this] { AbsorbAll(); });
    reporter_->NoteTransitions(following_->seen().first, following_->seen().next);
    if (!may) agreement_.Exchange(TimeIsUp());
    return may && !rewound_;
  }

  bool TimeIsUp() const {
    const double limit = start_.spec().training().time_limit_seconds();
    return limit > 0 && reporter_->seconds() >= limit;
  }

  void MakeStep(bool first) {
    const auto begin = std::chrono::steady_clock::now();
    const double processor_begin = ProcessorSeconds();
    if (idle_threads_) idle_threads_->Adapt(begin);
    agreement_.Tell(TimeIsUp(), step_seconds_, MetricAtPlateau(),
                    following_ && following_->NewsDue(session_->source(), ExamplesOfStep()));
    trace_.Begin(++step_);
    session_->step().Run(step_);
    trace_.End(step_);
    if (const std::string line = session_->step().TakeLogLine(); !line.empty()) {
      observer_.OnLog("step: " + line);
    }
    if (const double delay = Delay(); delay > 0) {
      std::this_thread::sleep_for(std::chrono::duration<double>(delay));
    }
    // Read the previous step's metrics, which are already available. Report the first step
    // immediately, so that watchers see progress.
    if (first && ranks_.alone()) {
      Absorb(Seconds(begin));
    } else if (session_->step().unread() == 2) {
      Absorb(agreement_.StepSeconds(step_seconds_));
    }
    step_seconds_ = Seconds(begin);
    // Processor time means nothing for a GPU or for ranks that wait for each other.
    const bool alone = ranks_.alone() && !session_->device().is_cuda();
    processor_seconds_ = alone ? ProcessorSeconds() - processor_begin + Delay() : 0;
  }

  double Delay() const {
    return IsReducedPrecision(session_->mode()) ? session_->faults().Delay(step_) : 0;
  }

  // Reads the metrics of the oldest unread step. A decision that they cause is left in pending_.
  void Absorb(double seconds) {
    const StepMetrics metrics = session_->step().Read();
    const int64_t step = step_ - session_->step().unread();
    const PrecisionMode mode = session_->mode();
    if (!pending_) pending_ = guard_->Judge(step, metrics, {seconds, processor_seconds_});
    reporter_->Add({.step = step,
                    .loss = metrics.loss,
                    .grad_norm = metrics.grad_norm,
                    .loss_scale = metrics.loss_scale,
                    .learning_rate = metrics.learning_rate,
                    .skipped = metrics.skipped,
                    .mode = mode,
                    .divergence = guard_->divergence(),
                    .speed = guard_->speed()},
                   metrics.next_loss_scale, guard_->baseline_loss(), seconds);
    all_fp32_ = all_fp32_ && !IsReducedPrecision(mode);
    const bool baseline = all_fp32_ && std::isfinite(metrics.loss);
    if (baseline) curve_.Add(step, metrics.loss, seconds, processor_seconds_);
  }

  // Reads all unread steps. Sync: waits for the newest step.
  void AbsorbAll() {
    while (session_->step().unread() > 0) Absorb(agreement_.StepSeconds(step_seconds_));
    if (pending_) ChangePrecision();
    reporter_->Flush();
  }

  void CompareSpeed() {
    AbsorbAll();  // May change the precision.
    if (guard_->WantsTimes()) pending_ = guard_->JudgeSpeed(step_, ranks_);
  }

  // Forbids reduced precision permanently, because the operator's decision is final.
  void LeaveReducedPrecision(const std::string& reason) {
    guard_->ForbidReducedPrecision();
    if (!IsReducedPrecision(session_->mode())) return;
    pending_ = PrecisionDecision{.to = training::v1::PRECISION_MODE_FP32,
                                 .rewind = false,
                                 .trigger = "policy",
                                 .reason = reason};
    ChangePrecision();
  }

  void ChangePrecision() {
    // Steps already in flight are counted but not judged.
    while (session_->step().unread() > 0) Absorb(agreement_.StepSeconds(step_seconds_));
    reporter_->Flush();
    const PrecisionDecision decision = *std::exchange(pending_, std::nullopt);
    // Peak memory is reported per precision.
    NotePeakMemory();
    ResetPeakMemory(session_->device());
    const auto [change, state] = guard_->Apply(decision, step_);
    if (change.resumed_step() == step_) return guard_->Announce(change);
    reporter_->Rewind(state->position.progress);
    checkpoints_.Forget();
    step_ = state->position.progress.step();
    // Later evaluations measured weights that the rewind has discarded.
    evaluator_->LoadState(state->evaluation);
    rewound_ = change;
  }

  // Makes the state that the run went back to durable, which removes the checkpoints of the
  // rejected steps, and only then announces the change: a restart cannot undo what was announced.
  void EndRewind(bool save) {
    if (save && checkpoints_.saved_step() != step_) Save();
    if (save) checkpoints_.Flush();
    guard_->Announce(*std::exchange(rewound_, std::nullopt));
  }

  void NotePeakMemory() {
    peak_device_bytes_ = std::max(peak_device_bytes_, ReadDeviceMemory(session_->device()).peak);
  }

  // Checkpoints and evaluations.

  std::shared_ptr<const TrainingState> TakeState() {
    AbsorbAll();
    RunPosition position;
    position.progress = reporter_->progress();
    position.progress.set_step(step_);
    auto state = std::make_shared<TrainingState>(session_->BeginState(std::move(position)));
    state->policy = guard_->policy();
    state->evaluation = evaluator_->state();
    return state;
  }

  void SaveOnRequest() {
    // The caller waits for a response, although the file may already exist.
    if (checkpoints_.saved_step() == step_ && checkpoints_.Repeat(step_)) return;
    Save();
  }

  void Save() {
    observer_.OnSection(training::v1::SECTION_CHECKPOINT);
    const auto since = std::chrono::steady_clock::now();
    const std::shared_ptr<const TrainingState> state = TakeState();
    std::optional<double> held_out_loss;
    if (evaluator_->Has(step_) && evaluator_->newest())
      held_out_loss = evaluator_->newest()->loss();
    checkpoints_.Save(*state, held_out_loss, since);
    guard_->KeepGoodState(state);
    observer_.OnSection(training::v1::SECTION_STEP);
  }

  // Requires that every step has been read.
  void Evaluate() {
    observer_.OnSection(training::v1::SECTION_EVALUATION);
    evaluator_->Measure(step_, ranks_);
    if (!evaluator_->note().empty()) {
      observer_.OnLog(absl::StrCat("evaluation: step ", step_, ": ", evaluator_->note()));
    }
    if (evaluator_->newest()) TellEvaluation(*evaluator_->newest());
    if (evaluator_->AtPlateau()) LowerRate();
    observer_.OnSection(training::v1::SECTION_STEP);
  }

  void TellEvaluation(const training::v1::Evaluation& evaluation) {
    guard_->NoteHeldOut(step_, evaluation.loss());
    if (all_fp32_) curve_.AddHeldOut(step_, evaluation.loss());
    observer_.OnLog(absl::StrFormat("evaluation: step %d, held-out loss %.6g%s", step_,
                                    evaluation.loss(), evaluation.best() ? ", the best" : ""));
    observer_.OnEvaluated(evaluation);
  }

  bool MetricAtPlateau() const { return control_.rate_reductions() > session_->rate_reductions(); }

  void LowerRate() {
    AbsorbAll();
    observer_.OnLog(absl::StrFormat("learning rate: at a plateau, %g after step %d",
                                    session_->LowerRate(), step_));
  }

  // The end of a run.

  bool EndsEarly() {
    if (agreement_.TimeIsUp(TimeIsUp())) {
      early_end_ =
          absl::StrFormat("%.1f s of training; training.time_limit_seconds is %g",
                          reporter_->seconds(), start_.spec().training().time_limit_seconds());
    } else if (evaluator_->Has(step_)) {
      early_end_ = evaluator_->StopReason();
    }
    if (early_end_.empty() && following_) early_end_ = following_->end_reason();
    if (early_end_.empty()) early_end_ = agreement_.EarlyEnd();
    return !early_end_.empty();
  }

  Finished Complete() {
    AbsorbAll();
    if (!evaluator_->Has(step_)) Evaluate();
    if (checkpoints_.saved_step() != step_) Save();
    Flush();
    Finished finished;
    finished.set_outcome(Finished::OUTCOME_COMPLETED);
    NotePeakMemory();
    finished.set_peak_device_bytes(peak_device_bytes_);
    finished.set_early_end(early_end_);
    if (const auto error = evaluator_->held_out_error()) *finished.mutable_held_out() = *error;
    *finished.mutable_progress() = reporter_->progress();
    // The next job that follows the buffer will see other data, so the curve is not a baseline.
    if (all_fp32_ && !following_) *finished.mutable_curve() = curve_.curve();
    observer_.OnLog(CompletionLine(start_.job_id(), finished, evaluator_->newest()));
    return finished;
  }

  void Flush() {
    observer_.OnSection(training::v1::SECTION_CHECKPOINT);
    checkpoints_.Flush();
    weights_->Finish(step_);
    // A launcher that sees one rank end may kill the others.
    ranks_.Await();
  }

  Finished Stop() {
    AbsorbAll();
    Flush();
    return Stopped(absl::StrCat("at step ", step_, " of ", session_->total_steps()));
  }

  Finished Stopped(const std::string& when) {
    observer_.OnLog("stopped " + when);
    Finished finished;
    finished.set_outcome(Finished::OUTCOME_STOPPED);
    if (reporter_) *finished.mutable_progress() = reporter_->progress();
    return finished;
  }

  StartJob start_;
  const training::v1::DeviceInfo& device_;
  RunControl& control_;
  RunObserver& observer_;
  RankGroup& ranks_;
  RunAgreement agreement_;
  RunCheckpoints checkpoints_;
  StepTrace trace_;
  std::unique_ptr<Dataset> dataset_;
  std::optional<Following> following_;  // Set if the job follows a replay buffer.
  std::unique_ptr<TrainingSession> session_;
  std::optional<ThreadLimit> threads_;
  std::optional<IdleThreads> idle_threads_;
  std::optional<PrecisionGuard> guard_;
  std::optional<Evaluator> evaluator_;
  std::optional<StepReporter> reporter_;
  std::optional<WeightsPublisher> weights_;
  Progress progress_;  // Progress of earlier attempts.
  int64_t step_ = 0;   // Steps launched, including those with unread metrics.
  double step_seconds_ = 0;
  double processor_seconds_ = 0;
  int64_t peak_device_bytes_ = 0;  // Peak of earlier precisions.
  std::optional<PrecisionDecision> pending_;
  // A rewind that is not announced yet, because its state may not be durable.
  std::optional<training::v1::PrecisionChange> rewound_;
  std::string early_end_;
  bool all_fp32_ = true;  // Set while every step has run in FP32.
  LossRecorder curve_;    // Losses of an all-FP32 run, the baseline of later jobs.
};

Finished Fail(const RunFailure& failure, const Progress& progress, RunObserver& observer) {
  observer.OnLog(absl::StrCat("training failed: ", failure.message));
  Finished finished = FailedRun(failure);
  *finished.mutable_progress() = progress;
  return finished;
}

}  // namespace

Finished RunTraining(const StartJob& start, const training::v1::DeviceInfo& device,
                     RunControl& control, RunObserver& observer, RankGroup& ranks) {
  StartJob resolved = start;
  const absl::Status files =
      ResolveJobFiles(start.datasets_root(), start.checkpoint_dir(), *resolved.mutable_spec());
  FillBatchSize(*resolved.mutable_spec());
  Run run(resolved, device, control, observer, ranks);
  try {
    Require(files, training::v1::FAILURE_CAUSE_DATA);
    return run.Execute();
  } catch (const RunFailure& failure) {
    return Fail(failure, run.LastProgress(), observer);
  } catch (const std::exception& error) {
    return Fail(ExplainException(error), run.LastProgress(), observer);
  }
}

}  // namespace genesis
