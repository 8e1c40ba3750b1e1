#include "server/jobs/followed_metric.h"

#include <algorithm>
#include <string>

#include "absl/strings/str_cat.h"
#include "base/text/field_error.h"

namespace genesis {

using training::v1::EvaluationSpec;
using training::v1::FollowedMetric;
using training::v1::JobSpec;

namespace {

// Returns whether `a` is better than `b` by more than `margin`.
bool IsBetter(const EvaluationSpec& spec, double a, double b, double margin) {
  return spec.mode() == training::v1::METRIC_MODE_MAX ? a > b + margin : a < b - margin;
}

// Returns why `value`, the newest in `state`, completes the job; "" if the job continues.
std::string EndReason(const EvaluationSpec& spec, const FollowedMetric& state, double value) {
  if (spec.has_target() && !IsBetter(spec, spec.target(), value, 0)) {
    return absl::StrCat("the reported ", spec.metric(), " reached ", FormatNumber(value),
                        "; evaluation.target is ", FormatNumber(spec.target()));
  }
  if (spec.patience() > 0 && state.without_improvement() >= spec.patience()) {
    return absl::StrCat(state.without_improvement(), " reports in a row did not improve on the ",
                        spec.metric(), " ", FormatNumber(state.best_value()), " of step ",
                        state.best_step(), "; evaluation.patience is ", spec.patience());
  }
  return "";
}

}  // namespace

FollowedMetric FollowMetric(const JobSpec& job, const std::map<int64_t, double>& values,
                            const FollowedMetric* before, bool ended) {
  FollowedMetric state;
  const EvaluationSpec& spec = job.evaluation();
  const int64_t plateau = job.optimizer().schedule().plateau_patience();
  // Reductions before the best value of the previous state.
  int64_t reductions = 0;
  if (before != nullptr && plateau > 0) {
    reductions = before->rate_reductions() - before->without_improvement() / plateau;
  }
  bool first = true;
  auto next = values.begin();
  if (before != nullptr) {
    state.set_early_end(before->early_end());
    if (!values.contains(before->best_step())) {
      state.set_best_value(before->best_value());
      state.set_best_step(before->best_step());
      next = values.upper_bound(before->best_step());
      first = false;
    }
  }
  for (; next != values.end(); ++next) {
    const auto& [step, value] = *next;
    if (first || IsBetter(spec, value, state.best_value(), spec.min_improvement())) {
      state.set_best_value(value);
      state.set_best_step(step);
      state.set_without_improvement(0);
      first = false;
    } else {
      state.set_without_improvement(state.without_improvement() + 1);
      const bool counted = before != nullptr && step <= before->best_step();
      if (plateau > 0 && !counted && state.without_improvement() % plateau == 0) ++reductions;
    }
    if (!ended && state.early_end().empty()) state.set_early_end(EndReason(spec, state, value));
  }
  state.set_rate_reductions(std::max<int64_t>(reductions, 0));
  return state;
}

training::v1::MetricValues MetricValuesOf(
    const training::v1::Job& job, const std::vector<training::v1::Checkpoint>& checkpoints) {
  training::v1::MetricValues sent;
  sent.set_early_end(job.followed_metric().early_end());
  sent.set_rate_reductions(job.followed_metric().rate_reductions());
  for (const training::v1::Checkpoint& each : checkpoints) {
    const auto found = each.reported_metrics().find(job.spec().evaluation().metric());
    if (found == each.reported_metrics().end()) continue;
    sent.add_steps(each.step());
    sent.add_values(found->second);
  }
  return sent;
}

}  // namespace genesis
