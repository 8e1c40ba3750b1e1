#include <cmath>
#include <string>

#include "absl/algorithm/container.h"
#include "absl/strings/str_cat.h"
#include "base/text/enum_names.h"
#include "base/text/field_error.h"
#include "config/job/field_rules.h"
#include "config/job/job_sections.h"
#include "config/job/key_name.h"

namespace genesis {

using training::v1::EvaluationSpec;
using training::v1::JobSpec;
using training::v1::OptimizerSpec;
using training::v1::TrainingSpec;

namespace {

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
}

void CheckFollowedMetric(const EvaluationSpec& evaluation, Faults& faults) {
  const bool follows = !evaluation.metric().empty();
  if (follows && !IsKeyName(evaluation.metric())) {
    faults.Add("evaluation.metric", QuoteValue(evaluation.metric()), kKeyNames);
  }
  const bool has_mode = evaluation.mode() != training::v1::METRIC_MODE_UNSPECIFIED;
  if (follows && !has_mode) {
    faults.Add("evaluation.mode", "",
               "required with evaluation.metric; give MAX if larger values are better, or MIN");
  }
  const auto needs = [&](const char* path, const std::string& value) {
    faults.Add(path, "",
               absl::StrCat(value,
                            " needs evaluation.metric; name the metric that callers report, "
                            "or remove ",
                            path));
  };
  if (!follows && has_mode) needs("evaluation.mode", ShortEnumName(evaluation.mode()));
  if (!follows && evaluation.has_target()) {
    needs("evaluation.target", FormatNumber(evaluation.target()));
  }
  if (!std::isfinite(evaluation.target())) {
    faults.Add("evaluation.target", FormatNumber(evaluation.target()), "a finite number");
  }
}

// Rules that use the held-out loss need it to be measured during training.
void CheckEvaluation(const JobSpec& spec, Faults& faults) {
  const EvaluationSpec& evaluation = spec.evaluation();
  CheckRanges("evaluation", evaluation, faults);
  CheckFollowedMetric(evaluation, faults);
  if (evaluation.every_steps() != 0) return;
  const auto needs = [&](const char* path, double value) {
    if (value <= 0) return;
    faults.Add(path, "",
               absl::StrCat(FormatNumber(value),
                            " needs evaluation.every_steps, which is 0; give the steps between "
                            "evaluations (>= 1), or remove ",
                            path));
  };
  const bool follows_loss = evaluation.metric().empty();
  if (follows_loss) needs("evaluation.patience", evaluation.patience());
  needs("training.target_loss", spec.training().target_loss());
  if (follows_loss) needs("checkpoint.keep_best", spec.checkpoint().keep_best());
}

void CheckTrace(const JobSpec& spec, Faults& faults) {
  const training::v1::TraceSpec& trace = spec.trace();
  CheckRanges("trace", trace, faults);
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

// Reports a field of one optimizer that is set with another one: one of the two is a mistake.
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

// Checks the points of a TABLE schedule. Linear interpolation needs them in ascending order.
void CheckSchedulePoints(const training::v1::ScheduleSpec& schedule, Faults& faults) {
  const bool table = schedule.kind() == training::v1::SCHEDULE_KIND_TABLE;
  if (table && schedule.points().empty()) {
    faults.Add("optimizer.schedule.points", "",
               "required with optimizer.schedule.kind TABLE; give a step and a factor, or more");
  }
  if (!table && !schedule.points().empty()) {
    faults.Add("optimizer.schedule.points", "",
               "conflicts with an optimizer.schedule.kind other than TABLE; remove the points, or "
               "give TABLE");
  }
  for (int i = 0; i < schedule.points_size(); ++i) {
    const std::string path = absl::StrCat("optimizer.schedule.points[", i, "]");
    CheckRanges(path, schedule.points(i), faults);
    if (i == 0) continue;
    const int64_t before = schedule.points(i - 1).step();
    if (schedule.points(i).step() <= before) {
      faults.Add(path + ".step", absl::StrCat(schedule.points(i).step()),
                 absl::StrCat("more than ", before, ", the step of the point before"));
    }
  }
  if (!table) return;
  const auto conflict = [&](const char* name, const std::string& value) {
    faults.Add(absl::StrCat("optimizer.schedule.", name), "",
               absl::StrCat(value,
                            " conflicts with optimizer.schedule.kind TABLE, whose points say "
                            "it all; remove it"));
  };
  if (schedule.warmup_steps() > 0) conflict("warmup_steps", absl::StrCat(schedule.warmup_steps()));
  if (schedule.final_fraction() > 0) {
    conflict("final_fraction", FormatNumber(schedule.final_fraction()));
  }
}

void CheckPlateau(const JobSpec& spec, Faults& faults) {
  const training::v1::ScheduleSpec& schedule = spec.optimizer().schedule();
  const bool plateau = schedule.kind() == training::v1::SCHEDULE_KIND_PLATEAU;
  const auto conflict = [&](const char* name, const std::string& value) {
    faults.Add(absl::StrCat("optimizer.schedule.", name), "",
               absl::StrCat(value,
                            " conflicts with an optimizer.schedule.kind other than PLATEAU; "
                            "remove it, or give PLATEAU"));
  };
  if (!plateau && schedule.plateau_factor() != 0) {
    conflict("plateau_factor", FormatNumber(schedule.plateau_factor()));
  }
  if (!plateau && schedule.plateau_patience() != 0) {
    conflict("plateau_patience", absl::StrCat(schedule.plateau_patience()));
  }
  if (!plateau) return;
  if (spec.evaluation().every_steps() <= 0 && spec.evaluation().metric().empty()) {
    faults.Add("optimizer.schedule.kind", "PLATEAU",
               "PLATEAU with evaluation.every_steps, or with an evaluation.metric that callers "
               "report; give one, or another kind");
  }
  if (schedule.goes_on()) {
    faults.Add("optimizer.schedule.goes_on", "true",
               "false with optimizer.schedule.kind PLATEAU; give optimizer.learning_rate the rate "
               "to begin with");
  }
}

void CheckParameterGroups(const OptimizerSpec& optimizer, Faults& faults) {
  for (int i = 0; i < optimizer.parameter_groups_size(); ++i) {
    const training::v1::ParameterGroupSpec& group = optimizer.parameter_groups(i);
    const std::string path = absl::StrCat("optimizer.parameter_groups[", i, "]");
    CheckRanges(path, group, faults);
    const auto empty = [](const std::string& pattern) { return pattern.empty(); };
    if (group.parameters().empty() || absl::c_any_of(group.parameters(), empty)) {
      faults.Add(path + ".parameters", "",
                 "required; give names of parameters as state_dict() has them, such as "
                 "\"encoder.*\" or \"*.bias\"");
    }
  }
}

void CheckSchedule(const JobSpec& spec, Faults& faults) {
  const training::v1::ScheduleSpec& schedule = spec.optimizer().schedule();
  CheckRanges("optimizer.schedule", schedule, faults);
  CheckSchedulePoints(schedule, faults);
  CheckPlateau(spec, faults);
  const int64_t steps = spec.training().max_steps();
  if (steps > 0 && !schedule.goes_on() && schedule.warmup_steps() > steps) {
    faults.Add("optimizer.schedule.warmup_steps", "",
               absl::StrCat(schedule.warmup_steps(), " conflicts with training.max_steps ", steps,
                            "; the warm-up has to end before the job"));
  }
}

void FillOptimizer(OptimizerSpec& optimizer) {
  FillDefaults(optimizer);
  if (optimizer.kind() != training::v1::OPTIMIZER_KIND_SGD) {
    if (optimizer.beta1() == 0) optimizer.set_beta1(0.9);
    if (optimizer.beta2() == 0) optimizer.set_beta2(0.999);
    if (optimizer.epsilon() == 0) optimizer.set_epsilon(1e-8);
  }
  if (optimizer.weight_decay() == 0) {
    optimizer.set_weight_decay(optimizer.kind() == training::v1::OPTIMIZER_KIND_ADAMW ? 0.01 : -1);
  }
  training::v1::ScheduleSpec& schedule = *optimizer.mutable_schedule();
  FillDefaults(schedule);
  if (schedule.kind() == training::v1::SCHEDULE_KIND_PLATEAU) {
    if (schedule.plateau_factor() == 0) schedule.set_plateau_factor(0.1);
    if (schedule.plateau_patience() == 0) schedule.set_plateau_patience(10);
  }
}

}  // namespace

void FillTraining(JobSpec& spec) {
  FillDefaults(*spec.mutable_training());
  FillOptimizer(*spec.mutable_optimizer());
  if (spec.trace().at_step() != 0 && spec.trace().steps() == 0) spec.mutable_trace()->set_steps(3);
  training::v1::CheckpointSpec& checkpoint = *spec.mutable_checkpoint();
  FillDefaults(checkpoint);
  if (checkpoint.keep_best() == 0) {
    const bool measured =
        spec.evaluation().every_steps() > 0 || !spec.evaluation().metric().empty();
    checkpoint.set_keep_best(measured ? 1 : -1);
  }
}

void CheckTraining(const JobSpec& spec, Faults& faults) {
  CheckLength(spec.training(), faults);
  CheckRanges("training", spec.training(), faults);
  CheckEvaluation(spec, faults);
  CheckRanges("optimizer", spec.optimizer(), faults);
  CheckOptimizerConflicts(spec.optimizer(), faults);
  CheckParameterGroups(spec.optimizer(), faults);
  CheckSchedule(spec, faults);
  CheckTrace(spec, faults);
  CheckRanges("checkpoint", spec.checkpoint(), faults);
}

}  // namespace genesis
