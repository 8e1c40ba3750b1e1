#include "absl/strings/str_cat.h"
#include "config/job/job_sections.h"

namespace genesis {

using training::v1::EvaluationSpec;
using training::v1::JobSpec;
using training::v1::OptimizerSpec;
using training::v1::TrainingSpec;

namespace {

constexpr char kPositive[] = "a finite number > 0";
// A step is some thousand events, and all of a trace are held in memory.
constexpr int64_t kMaxTracedSteps = 100;

void CheckLength(const TrainingSpec& training, Faults& faults) {
  if (training.max_steps() != 0 && training.epochs() != 0) {
    faults.Add("training.max_steps", "",
               absl::StrCat(training.max_steps(), " conflicts with training.epochs ",
                            training.epochs(), "; give one of the two"));
  } else if (training.max_steps() == 0 && training.epochs() == 0) {
    faults.Add("training", "",
               "its length is required; give training.max_steps (1 to 1000000000000) or "
               "training.epochs (1 to 1000000)");
  }
  faults.CheckWhole("training.max_steps", training.max_steps(), 1, 1'000'000'000'000);
  faults.CheckWhole("training.epochs", training.epochs(), 1, 1'000'000);
}

void CheckTrainingSection(const TrainingSpec& training, Faults& faults) {
  CheckLength(training, faults);
  faults.CheckWhole("training.batch_size", training.batch_size(), 1, 1048576);
  faults.CheckWhole("training.gradient_accumulation_steps", training.gradient_accumulation_steps(),
                    1, 65536);
  const double norm = training.max_grad_norm();
  faults.CheckNumber("training.max_grad_norm", norm, norm > 0 || norm == -1,
                     "a finite number > 0, or -1 for no clipping");
  faults.CheckNumber("training.ema_decay", training.ema_decay(),
                     training.ema_decay() > 0 && training.ema_decay() < 1,
                     "above 0 and below 1, or 0 for no average");
  faults.CheckNumber("training.time_limit_seconds", training.time_limit_seconds(),
                     training.time_limit_seconds() > 0, kPositive);
  faults.CheckNumber("training.target_loss", training.target_loss(), training.target_loss() > 0,
                     kPositive);
}

// A rule that stops a job by its held-out loss needs one that is measured on the way.
void CheckEvaluation(const JobSpec& spec, Faults& faults) {
  const EvaluationSpec& evaluation = spec.evaluation();
  faults.CheckWhole("evaluation.every_steps", evaluation.every_steps(), 1, kMaxInt64);
  faults.CheckWhole("evaluation.patience", evaluation.patience(), 1, 1'000'000'000);
  faults.CheckNumber("evaluation.min_improvement", evaluation.min_improvement(),
                     evaluation.min_improvement() > 0, "a finite number >= 0");
  if (evaluation.every_steps() != 0) return;
  const auto needs = [&](const char* path, double value) {
    if (value <= 0) return;
    faults.Add(path, "",
               absl::StrCat(FormatNumber(value),
                            " needs evaluation.every_steps, which is 0; give the steps between "
                            "evaluations (>= 1), or remove ",
                            path));
  };
  needs("evaluation.patience", evaluation.patience());
  needs("training.target_loss", spec.training().target_loss());
  needs("checkpoint.keep_best", spec.checkpoint().keep_best());
}

void CheckTrace(const JobSpec& spec, Faults& faults) {
  const training::v1::TraceSpec& trace = spec.trace();
  faults.CheckWhole("trace.at_step", trace.at_step(), 1, kMaxInt64);
  faults.CheckWhole("trace.steps", trace.steps(), 1, kMaxTracedSteps);
  if (trace.at_step() == 0 && trace.steps() != 0) {
    faults.Add(
        "trace.at_step", "",
        absl::StrCat("trace.steps ", trace.steps(),
                     " needs the first step that is traced; give trace.at_step (1 or more)"));
  }
  const int64_t steps = spec.training().max_steps();
  if (steps > 0 && trace.at_step() > steps) {
    faults.Add("trace.at_step", "",
               absl::StrCat(trace.at_step(), " conflicts with training.max_steps ", steps,
                            "; the trace has to begin before the job ends"));
  }
}

// A setting of one optimizer beside another one is a mistake in one of two places.
void CheckOptimizerConflicts(const OptimizerSpec& optimizer, Faults& faults) {
  const bool sgd = optimizer.kind() == training::v1::OPTIMIZER_KIND_SGD;
  const auto conflict = [&](const char* path, const std::string& value) {
    faults.Add(path, "",
               absl::StrCat(value, " conflicts with optimizer.kind ", sgd ? "SGD" : "ADAMW or ADAM",
                            ", which does not use it; remove one of the two"));
  };
  if (sgd) {
    if (optimizer.beta1() != 0) conflict("optimizer.beta1", FormatNumber(optimizer.beta1()));
    if (optimizer.beta2() != 0) conflict("optimizer.beta2", FormatNumber(optimizer.beta2()));
    if (optimizer.epsilon() != 0) conflict("optimizer.epsilon", FormatNumber(optimizer.epsilon()));
    if (optimizer.nesterov() && optimizer.momentum() == 0) {
      faults.Add("optimizer.nesterov", "",
                 "true needs optimizer.momentum above 0; give one, or remove nesterov");
    }
    return;
  }
  if (optimizer.momentum() != 0) {
    conflict("optimizer.momentum", FormatNumber(optimizer.momentum()));
  }
  if (optimizer.nesterov()) conflict("optimizer.nesterov", "true");
}

void CheckSchedule(const JobSpec& spec, Faults& faults) {
  const training::v1::ScheduleSpec& schedule = spec.optimizer().schedule();
  faults.CheckWhole("optimizer.schedule.warmup_steps", schedule.warmup_steps(), 1, kMaxInt64);
  faults.CheckNumber("optimizer.schedule.final_fraction", schedule.final_fraction(),
                     schedule.final_fraction() > 0 && schedule.final_fraction() <= 1, "0 to 1");
  const int64_t steps = spec.training().max_steps();
  if (steps > 0 && schedule.warmup_steps() > steps) {
    faults.Add("optimizer.schedule.warmup_steps", "",
               absl::StrCat(schedule.warmup_steps(), " conflicts with training.max_steps ", steps,
                            "; the warm-up has to end before the job"));
  }
}

void CheckOptimizer(const OptimizerSpec& optimizer, Faults& faults) {
  constexpr char kDecay[] = "above 0 and below 1, or -1 for 0";
  const auto is_decay = [](double x) { return x == -1 || (x > 0 && x < 1); };
  faults.CheckNumber("optimizer.learning_rate", optimizer.learning_rate(),
                     optimizer.learning_rate() > 0, kPositive);
  faults.CheckNumber("optimizer.beta1", optimizer.beta1(), is_decay(optimizer.beta1()), kDecay);
  faults.CheckNumber("optimizer.beta2", optimizer.beta2(), is_decay(optimizer.beta2()), kDecay);
  faults.CheckNumber("optimizer.epsilon", optimizer.epsilon(), optimizer.epsilon() > 0, kPositive);
  const double weight_decay = optimizer.weight_decay();
  faults.CheckNumber("optimizer.weight_decay", weight_decay, weight_decay > 0 || weight_decay == -1,
                     "a finite number > 0, or -1 for no decay");
  faults.CheckNumber("optimizer.momentum", optimizer.momentum(),
                     optimizer.momentum() > 0 && optimizer.momentum() < 1, "0, or below 1");
  CheckOptimizerConflicts(optimizer, faults);
}

void FillOptimizer(OptimizerSpec& optimizer) {
  if (optimizer.kind() == training::v1::OPTIMIZER_KIND_UNSPECIFIED) {
    optimizer.set_kind(training::v1::OPTIMIZER_KIND_ADAMW);
  }
  if (optimizer.learning_rate() == 0) optimizer.set_learning_rate(1e-3);
  if (optimizer.kind() != training::v1::OPTIMIZER_KIND_SGD) {
    if (optimizer.beta1() == 0) optimizer.set_beta1(0.9);
    if (optimizer.beta2() == 0) optimizer.set_beta2(0.999);
    if (optimizer.epsilon() == 0) optimizer.set_epsilon(1e-8);
  }
  if (optimizer.weight_decay() == 0) {
    optimizer.set_weight_decay(optimizer.kind() == training::v1::OPTIMIZER_KIND_ADAMW ? 0.01 : -1);
  }
  training::v1::ScheduleSpec& schedule = *optimizer.mutable_schedule();
  if (schedule.kind() == training::v1::SCHEDULE_KIND_UNSPECIFIED) {
    schedule.set_kind(training::v1::SCHEDULE_KIND_CONSTANT);
  }
}

}  // namespace

void FillTraining(JobSpec& spec) {
  TrainingSpec& training = *spec.mutable_training();
  if (training.batch_size() == 0) training.set_batch_size(128);
  if (training.gradient_accumulation_steps() == 0) training.set_gradient_accumulation_steps(1);
  if (training.max_grad_norm() == 0) training.set_max_grad_norm(1.0);
  FillOptimizer(*spec.mutable_optimizer());
  if (spec.trace().at_step() != 0 && spec.trace().steps() == 0) spec.mutable_trace()->set_steps(3);
  training::v1::CheckpointSpec& checkpoint = *spec.mutable_checkpoint();
  if (checkpoint.keep_last() == 0) checkpoint.set_keep_last(3);
  if (checkpoint.keep_best() == 0) {
    checkpoint.set_keep_best(spec.evaluation().every_steps() > 0 ? 1 : -1);
  }
}

void CheckTraining(const JobSpec& spec, Faults& faults) {
  CheckTrainingSection(spec.training(), faults);
  CheckEvaluation(spec, faults);
  CheckOptimizer(spec.optimizer(), faults);
  CheckSchedule(spec, faults);
  CheckTrace(spec, faults);
  const training::v1::CheckpointSpec& checkpoint = spec.checkpoint();
  faults.CheckWhole("checkpoint.every_steps", checkpoint.every_steps(), 0, kMaxInt64);
  faults.CheckWhole("checkpoint.keep_last", checkpoint.keep_last(), 1, 1000);
  if (checkpoint.keep_best() != -1) {
    faults.CheckWhole("checkpoint.keep_best", checkpoint.keep_best(), 1, 1000);
  }
}

}  // namespace genesis
