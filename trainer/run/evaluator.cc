#include "trainer/run/evaluator.h"

#include <algorithm>
#include <map>
#include <numeric>
#include <utility>
#include <vector>

#include "absl/strings/str_format.h"
#include "config/job/model_kinds.h"

namespace genesis {
namespace {

// Number of examples measured at a time. A built-in model, whose losses are means over examples,
// uses the job's batch size if that is larger. A user's module always uses the job's batch size,
// because its loss may depend on the batch size, and its memory does.
constexpr int64_t kPart = 1024;
constexpr char kNothingCounts[] =
    "no held-out example counts in the loss (their labels are ignored, or their weights are 0), so "
    "the held-out loss is not measured; hold out examples that count";
constexpr char kNothingHeldOut[] =
    "no episode of the replay buffer is held out, so the held-out loss is not measured";

int64_t PartSize(const training::v1::JobSpec& spec) {
  const int64_t batch = spec.training().batch_size();
  return ModuleFile(spec.model()).empty() ? std::max<int64_t>(kPart, batch) : batch;
}

// Sums of metrics over several batches.
class MetricTotals {
 public:
  void Add(const std::vector<MetricSum>& batch) {
    ++batches_;
    std::map<std::string, int> terms;
    for (const MetricSum& metric : batch) {
      Total& total = totals_[{metric.name, terms[metric.name]++}];
      const auto add = [](torch::Tensor& to, const torch::Tensor& more) {
        to = to.defined() ? to + more : more;
      };
      add(total.sum, metric.sum);
      if (!metric.count.defined()) continue;
      add(total.count, metric.count);
      const bool bounded = metric.added.defined();
      const torch::Tensor divisor =
          bounded ? torch::maximum(metric.count + metric.added + metric.added_once,
                                   metric.least + metric.least_once)
                  : metric.count;
      add(total.empty, (divisor == 0).logical_and(metric.sum == 0).to(torch::kLong));
      if (!bounded) continue;
      add(total.added, metric.added);
      add(total.least, metric.least);
      total.added_once = metric.added_once;
      total.least_once = metric.least_once;
    }
  }

  std::map<std::string, double> Means(int64_t examples) const {
    std::map<std::string, double> means;
    for (const auto& [key, total] : totals_) {
      means[key.first] += total.sum.item<double>() / Divisor(total, examples);
    }
    return means;
  }

  // Returns a remark if some batches have no example that counts in this metric; otherwise "".
  std::string Note(const std::string& name) const {
    int64_t empty = 0;
    for (const auto& [key, total] : totals_) {
      if (key.first != name || !total.empty.defined()) continue;
      empty = std::max(empty, total.empty.item<int64_t>());
    }
    if (empty == 0) return "";
    if (empty == batches_) {
      return kNothingCounts;
    }
    return absl::StrFormat(
        "%d of %d held-out batches have nothing that counts in the loss (their labels are ignored, "
        "or their weights are 0); the held-out loss is that of the others",
        empty, batches_);
  }

 private:
  struct Total {
    torch::Tensor sum;
    torch::Tensor count;  // If undefined, `empty` is too and the divisor is the number of examples.
    torch::Tensor empty;  // Number of batches in which nothing counts.
    // As in MetricSum; undefined if the divisor is `count`.
    torch::Tensor added, added_once, least, least_once;
  };

  static double Divisor(const Total& total, int64_t examples) {
    if (!total.count.defined()) return static_cast<double>(examples);
    if (!total.added.defined()) return total.count.item<double>();
    return torch::maximum(total.count + total.added + total.added_once,
                          total.least + total.least_once)
        .item<double>();
  }

  // Key: name and index of the term.
  std::map<std::pair<std::string, int>, Total> totals_;
  int64_t batches_ = 0;
};

}  // namespace

Evaluator::Evaluator(const training::v1::JobSpec& spec, const Dataset& dataset,
                     TrainingSession& session)
    : spec_(spec), dataset_(dataset), session_(session) {}

void Evaluator::Measure(int64_t step, RankGroup& ranks) {
  training::v1::Evaluation evaluation;
  if (ranks.first()) evaluation = Figures(step);
  ranks.CopyFromFirst(evaluation);
  note_ = ranks.FromFirst(note_);
  state_.newest_step = step;
  state_.newest.reset();
  if (note_ == kNothingCounts || note_ == kNothingHeldOut) return;
  const double margin = FollowsLoss() ? spec_.evaluation().min_improvement() : 0;
  if (evaluation.loss() < state_.best_loss - margin) {
    state_.best_loss = evaluation.loss();
    state_.best_step = step;
    state_.without_improvement = 0;
    evaluation.set_best(true);
  } else {
    ++state_.without_improvement;
  }
  state_.newest = std::move(evaluation);
}

training::v1::Evaluation Evaluator::Figures(int64_t step) {
  if (dataset_.size() == dataset_.training_size()) {
    note_ = kNothingHeldOut;
    return {};
  }
  const torch::NoGradGuard no_grad;
  const TrainingSession::Fp32Weights fp32(session_);
  const int64_t part = PartSize(spec_);
  const int64_t first_held_out = dataset_.training_size();
  const int64_t end = session_.model().takes_short_batches()
                          ? dataset_.size()
                          : dataset_.size() - (dataset_.size() - first_held_out) % part;
  MetricTotals totals;
  for (int64_t begin = first_held_out; begin < end; begin += part) {
    std::vector<int64_t> examples(static_cast<size_t>(std::min(part, end - begin)));
    std::iota(examples.begin(), examples.end(), begin);
    totals.Add(session_.model().Evaluate(session_.source().Fetch(std::move(examples))));
  }
  const int64_t examples = end - first_held_out;
  training::v1::Evaluation evaluation;
  evaluation.set_step(step);
  // Sync: reading the sums waits for the device.
  for (const auto& [name, mean] : totals.Means(examples)) {
    if (name == "loss") {
      evaluation.set_loss(mean);
    } else {
      (*evaluation.mutable_metrics())[name] = mean;
    }
  }
  note_ = totals.Note("loss");
  session_.model().AddDerivedMetrics(evaluation);
  return evaluation;
}

std::optional<training::v1::HeldOutError> Evaluator::held_out_error() const {
  if (!state_.newest) return std::nullopt;
  const auto& metrics = state_.newest->metrics();
  const auto model = metrics.find("observation_error");
  if (model == metrics.end()) return std::nullopt;
  training::v1::HeldOutError error;
  error.set_model(model->second);
  error.set_persistence(metrics.at("persistence_error"));
  error.set_mean(metrics.at("mean_error"));
  error.set_transitions(dataset_.size() - dataset_.training_size());
  return error;
}

bool Evaluator::AtPlateau() const {
  const int32_t patience = spec_.optimizer().schedule().plateau_patience();
  const int32_t count = state_.without_improvement;
  return FollowsLoss() && state_.newest && count > 0 && patience > 0 && count % patience == 0;
}

std::string Evaluator::StopReason() const {
  const double target = spec_.training().target_loss();
  if (target > 0 && state_.newest && state_.newest->loss() <= target) {
    return absl::StrFormat("the held-out loss reached %.6g; training.target_loss is %g",
                           state_.newest->loss(), target);
  }
  const int32_t patience = FollowsLoss() ? spec_.evaluation().patience() : 0;
  if (patience > 0 && state_.without_improvement >= patience) {
    return absl::StrFormat(
        "%d evaluations in a row did not improve on the held-out loss %.6g of step %d; "
        "evaluation.patience is %d",
        state_.without_improvement, state_.best_loss, state_.best_step, patience);
  }
  return "";
}

}  // namespace genesis
