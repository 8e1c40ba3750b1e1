#include "server/sweeps/halving.h"

#include <algorithm>
#include <cmath>
#include <iterator>
#include <limits>
#include <optional>
#include <set>
#include <string>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/text/field_error.h"

namespace genesis {
namespace {

using training::v1::Evaluation;
using training::v1::RungResult;
using training::v1::Sweep;
using training::v1::SweepSpec;
using training::v1::Trial;

// Returns the sweep's metric in the evaluation: NaN if it is not finite, nullopt if it is missing.
std::optional<double> MetricOf(const SweepSpec& spec, const Evaluation& evaluation) {
  double value = evaluation.loss();
  if (spec.metric() != "loss") {
    const auto found = evaluation.metrics().find(spec.metric());
    if (found == evaluation.metrics().end()) return std::nullopt;
    value = found->second;
  }
  return std::isfinite(value) ? value : std::numeric_limits<double>::quiet_NaN();
}

// Returns the first step of the rung; nullopt if no job gets there.
std::optional<int64_t> StepOfRung(const training::v1::SuccessiveHalving& halving, int rung) {
  constexpr int64_t kMaxSteps = int64_t{1} << 53;
  int64_t step = halving.first_rung_steps();
  for (int i = 0; i < rung; ++i) {
    if (step > kMaxSteps / halving.reduction_factor()) return std::nullopt;
    step *= halving.reduction_factor();
  }
  return step;
}

}  // namespace

bool IsBetter(const SweepSpec& spec, double a, double b) {
  if (std::isnan(a)) return false;
  if (std::isnan(b)) return true;
  return spec.maximize() ? a > b : a < b;
}

int NoteEvaluation(const Evaluation& evaluation, const Sweep& sweep, Trial& trial) {
  const std::optional<double> value = MetricOf(sweep.spec(), evaluation);
  if (!value) return 0;
  const int64_t step = evaluation.step();
  trial.set_step(step);
  // The weights of the best value are gone if the job went back before them.
  if (trial.best_step() >= step) trial.clear_best_value();
  if (!trial.has_best_value() || IsBetter(sweep.spec(), *value, trial.best_value())) {
    trial.set_best_value(*value);
    trial.set_best_step(step);
  }
  if (!sweep.spec().has_halving()) return 0;
  auto& rungs = *trial.mutable_rungs();
  const int before = rungs.size();
  while (!rungs.empty() && rungs.rbegin()->step() >= step) rungs.RemoveLast();
  for (;;) {
    const std::optional<int64_t> first = StepOfRung(sweep.spec().halving(), rungs.size());
    if (!first || step < *first) return std::max(rungs.size() - before, 0);
    RungResult result;
    result.set_rung(rungs.size());
    result.set_step(step);
    result.set_value(*value);
    *rungs.Add() = result;
  }
}

std::string MissingMetric(const SweepSpec& spec, const Evaluation& evaluation) {
  if (MetricOf(spec, evaluation)) return "";
  constexpr size_t kMaxShown = 16;
  std::set<std::string> names;
  for (const auto& [name, value] : evaluation.metrics()) names.insert(QuoteValue(name));
  const bool more = names.size() > kMaxShown;
  if (more) names.erase(std::next(names.begin(), kMaxShown), names.end());
  return absl::StrCat("its evaluations have no metric ", QuoteValue(spec.metric()),
                      "; they have \"loss\"", names.empty() ? "" : ", ", absl::StrJoin(names, ", "),
                      more ? ", ..." : "");
}

std::string WhyItLoses(const Sweep& sweep, const Trial& trial) {
  const RungResult& mine = *trial.rungs().rbegin();
  int reached = 0;
  int better = 0;
  for (const Trial& each : sweep.trials()) {
    if (each.rungs_size() <= mine.rung()) continue;
    ++reached;
    better += IsBetter(sweep.spec(), each.rungs(mine.rung()).value(), mine.value()) ? 1 : 0;
  }
  const int kept = std::max(reached / sweep.spec().halving().reduction_factor(), 1);
  if (better < kept && !std::isnan(mine.value())) return "";
  return absl::StrCat(sweep.spec().metric(), " ", mine.value(), " at step ", mine.step(),
                      " is not among the best ", kept, " of ", reached, " at rung ", mine.rung());
}

void SetBestTrial(Sweep& sweep) {
  sweep.clear_best_trial();
  const auto beats = [&sweep](const Trial& a, const Trial& b) {
    if (a.stopped_early() != b.stopped_early()) return b.stopped_early();
    return IsBetter(sweep.spec(), a.best_value(), b.best_value());
  };
  for (const Trial& each : sweep.trials()) {
    if (!each.has_best_value() || std::isnan(each.best_value())) continue;
    if (!sweep.has_best_trial() || beats(each, sweep.trials(sweep.best_trial()))) {
      sweep.set_best_trial(each.number());
    }
  }
}

}  // namespace genesis
