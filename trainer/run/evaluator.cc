#include "trainer/run/evaluator.h"

#include <algorithm>
#include <map>
#include <numeric>

#include "absl/strings/str_format.h"
#include "config/job/model_kinds.h"

namespace genesis {
namespace {

// Examples of a built-in model that are measured at a time, or the job's own batch where that is
// larger: its losses are means over examples. That of a user's module may depend on the batch, and
// takes as much memory.
constexpr int64_t kPart = 1024;

int64_t PartSize(const training::v1::JobSpec& spec) {
  const int64_t batch = spec.training().batch_size();
  return ModuleFile(spec.model()).empty() ? std::max<int64_t>(kPart, batch) : batch;
}

}  // namespace

Evaluator::Evaluator(const training::v1::JobSpec& spec, const Dataset& dataset,
                     TrainingSession& session)
    : spec_(spec), dataset_(dataset), session_(session) {}

training::v1::Evaluation Evaluator::Measure(int64_t step, RankGroup* ranks) {
  training::v1::Evaluation evaluation;
  if (ranks == nullptr || ranks->first()) evaluation = Figures(step);
  if (ranks != nullptr) {
    evaluation.ParseFromString(ranks->FromFirst(evaluation.SerializeAsString()));
  }
  if (evaluation.loss() < state_.best_loss - spec_.evaluation().min_improvement()) {
    state_ = {.best_loss = evaluation.loss(), .best_step = step, .without_improvement = 0};
    evaluation.set_best(true);
  } else {
    ++state_.without_improvement;
  }
  last_ = evaluation;
  return evaluation;
}

training::v1::Evaluation Evaluator::Figures(int64_t step) {
  const torch::NoGradGuard no_grad;
  const TrainingSession::Fp32Weights fp32(session_);
  const int64_t part = PartSize(spec_);
  const int64_t first_held_out = dataset_.training_size();
  const int64_t end = session_.model().takes_short_batches()
                          ? dataset_.size()
                          : dataset_.size() - (dataset_.size() - first_held_out) % part;
  std::map<std::string, MetricSum> sums;
  for (int64_t begin = first_held_out; begin < end; begin += part) {
    std::vector<int64_t> examples(static_cast<size_t>(std::min(part, end - begin)));
    std::iota(examples.begin(), examples.end(), begin);
    for (const MetricSum& metric :
         session_.model().Evaluate(session_.source().Fetch(std::move(examples)))) {
      const auto [total, first] = sums.emplace(metric.name, metric);
      if (first) continue;
      total->second.sum = total->second.sum + metric.sum;
      if (metric.count.defined()) total->second.count = total->second.count + metric.count;
    }
  }
  const auto examples = static_cast<double>(end - first_held_out);
  training::v1::Evaluation evaluation;
  evaluation.set_step(step);
  for (const auto& [name, total] : sums) {
    // Sync: an evaluation waits for the device.
    const double mean =
        total.sum.item<double>() / (total.count.defined() ? total.count.item<double>() : examples);
    if (name == "loss") {
      evaluation.set_loss(mean);
    } else {
      (*evaluation.mutable_metrics())[name] = mean;
    }
  }
  session_.model().AddDerivedMetrics(evaluation);
  return evaluation;
}

std::optional<training::v1::HeldOutError> Evaluator::held_out_error() const {
  const auto model = last_.metrics().find("observation_error");
  if (model == last_.metrics().end()) return std::nullopt;
  training::v1::HeldOutError error;
  error.set_model(model->second);
  error.set_persistence(last_.metrics().at("persistence_error"));
  error.set_mean(last_.metrics().at("mean_error"));
  error.set_transitions(dataset_.size() - dataset_.training_size());
  return error;
}

std::string Evaluator::StopReason() const {
  const double target = spec_.training().target_loss();
  if (target > 0 && last_.step() > 0 && last_.loss() <= target) {
    return absl::StrFormat("the held-out loss reached %.6g; training.target_loss is %g",
                           last_.loss(), target);
  }
  const int32_t patience = spec_.evaluation().patience();
  if (patience > 0 && state_.without_improvement >= patience) {
    return absl::StrFormat(
        "%d evaluations in a row did not improve on the held-out loss %.6g of step %d; "
        "evaluation.patience is %d",
        state_.without_improvement, state_.best_loss, state_.best_step, patience);
  }
  return "";
}

}  // namespace genesis
