#include "trainer/guard/non_finite_diagnosis.h"

#include <algorithm>
#include <cmath>
#include <memory>

#include "trainer/guard/non_finite_trace.h"
#include "trainer/models/base/kept_state.h"

namespace genesis {
namespace {

constexpr size_t kMaxParameters = 8;
constexpr size_t kMaxExamples = 16;
constexpr double kLargestHalf = 65504;

bool AllFinite(const torch::Tensor& tensor) {
  return torch::isfinite(tensor.detach()).all().item<bool>();
}

bool HoldsBadData(const Batch& batch) {
  for (const auto& [name, tensor] : batch.fields) {
    if (!tensor.is_floating_point()) continue;
    if (!AllFinite(tensor) || tensor.abs().max().item<double>() > kLargestHalf) return true;
  }
  return false;
}

// Returns whether the loss of the batch is a mean over no items (0 / 0).
bool NothingCounts(Model& model, const Batch& batch) {
  const torch::NoGradGuard no_grad;
  const std::vector<MetricSum> metrics = model.Evaluate(batch);
  return std::any_of(metrics.begin(), metrics.end(), [](const MetricSum& metric) {
    return metric.name == "loss" && metric.count.defined() && metric.count.item<double>() == 0;
  });
}

// Computes the forward and backward pass of one micro-batch. Returns whether loss and gradients are
// finite.
bool Recompute(Model& model, MasterWeights& weights, Batch& batch,
               std::optional<torch::ScalarType> autocast, double loss_scale) {
  weights.BeginStep();
  model.Draw(batch);
  const torch::Tensor loss = model.Loss(batch, autocast);
  if (!AllFinite(loss)) return false;
  (loss * loss_scale).backward();
  for (const auto& [name, parameter] : model.parameters()) {
    if (parameter.grad().defined() && !AllFinite(parameter.grad())) return false;
  }
  return true;
}

std::vector<std::string> BadParameters(const Model& model, const StepEvidence& evidence) {
  std::vector<std::string> names;
  const NamedTensors parameters = model.parameters();
  const torch::Tensor norms = evidence.gradient_norms.to(at::kCPU);
  const float* const norm = norms.const_data_ptr<float>();
  for (size_t i = 0; i < parameters.size() && names.size() < kMaxParameters; ++i) {
    if (!std::isfinite(norm[i])) names.push_back(parameters[i].first);
  }
  return names;
}

Verdict VerdictOf(const std::string& name) {
  for (const Verdict verdict : {Verdict::kData, Verdict::kLabels, Verdict::kWeights,
                                Verdict::kPrecision, Verdict::kDivergence}) {
    if (name == VerdictName(verdict)) return verdict;
  }
  return Verdict::kPassed;
}

bool WeightsAreFinite(const MasterWeights& weights) {
  return std::all_of(weights.masters().begin(), weights.masters().end(), AllFinite);
}

NonFiniteDiagnosis Diagnose(const StepParts& parts, const StepFormat& format,
                            const StepEvidence& evidence, int64_t step, double loss_scale) {
  NonFiniteDiagnosis found;
  found.parameters = BadParameters(parts.model, evidence);
  at::Generator generator = at::detail::getDefaultCPUGenerator();
  const KeptGenerators generators(parts.weights.masters().front().device());
  const std::shared_ptr<const void> state = parts.model.KeepState();
  generator.set_state(evidence.generator);
  for (size_t i = 0; i < evidence.examples.size() && found.micro_batch < 0; ++i) {
    Batch batch = parts.source.Fetch(evidence.examples[i]);
    parts.faults.SpoilBatch(step, static_cast<int64_t>(i), format.reduced(), batch);
    const torch::Tensor before = generator.get_state();
    const NonFiniteTrace trace(parts.model.parameters());
    if (Recompute(parts.model, parts.weights, batch, format.autocast, loss_scale)) continue;
    found.micro_batch = static_cast<int32_t>(i);
    found.module = trace.found();
    found.examples = evidence.examples[i];
    if (!WeightsAreFinite(parts.weights)) {
      found.verdict = Verdict::kWeights;
    } else if (HoldsBadData(batch)) {
      found.verdict = Verdict::kData;
    } else if (NothingCounts(parts.model, batch)) {
      found.verdict = Verdict::kLabels;
    } else {
      generator.set_state(before);
      parts.weights.SetFormat(at::kFloat);
      const bool fine = format.reduced() && Recompute(parts.model, parts.weights, batch,
                                                      std::nullopt, /*loss_scale=*/1);
      found.verdict = fine ? Verdict::kPrecision : Verdict::kDivergence;
    }
  }
  parts.weights.BeginStep();
  parts.weights.SetFormat(format.weights);
  return found;
}

}  // namespace

std::string VerdictName(Verdict verdict) {
  switch (verdict) {
    case Verdict::kData:
      return "data";
    case Verdict::kLabels:
      return "labels";
    case Verdict::kWeights:
      return "weights";
    case Verdict::kPrecision:
      return "precision";
    case Verdict::kDivergence:
      return "divergence";
    case Verdict::kPassed:
      return "passed";
  }
  return "";
}

void NonFiniteDiagnosis::Describe(training::v1::Incident& incident) const {
  incident.set_verdict(VerdictName(verdict));
  incident.set_micro_batch(micro_batch);
  incident.set_module(module);
  incident.mutable_parameters()->Assign(parameters.begin(), parameters.end());
  const auto shown = static_cast<std::ptrdiff_t>(std::min(examples.size(), kMaxExamples));
  incident.mutable_examples()->Assign(examples.begin(), examples.begin() + shown);
}

NonFiniteDiagnosis FirstDiagnosis(RankGroup& ranks, NonFiniteDiagnosis own) {
  training::v1::Incident mine;
  own.Describe(mine);
  for (const std::string& text : ranks.FromAll(mine.SerializeAsString())) {
    training::v1::Incident told;
    if (!told.ParseFromString(text) || told.micro_batch() < 0) continue;
    return {.verdict = VerdictOf(told.verdict()),
            .micro_batch = told.micro_batch(),
            .module = told.module(),
            .parameters = {told.parameters().begin(), told.parameters().end()},
            .examples = {told.examples().begin(), told.examples().end()}};
  }
  return own;
}

NonFiniteDiagnosis DiagnoseLastStep(TrainingSession& session, int64_t step, double loss_scale) {
  // Diagnose() may reallocate weights, whose addresses a captured step holds.
  session.step().ForgetCapture();
  const StepParts parts = session.Parts();
  return FirstDiagnosis(parts.ranks, Diagnose(parts, FormatOf(session.mode()),
                                              session.step().evidence(), step, loss_scale));
}

}  // namespace genesis
