#include "trainer/step/captured_step.h"

#include <algorithm>
#include <utility>

namespace genesis {
namespace {

bool HaveSameShapes(const Batch& one, const Batch& other) {
  return std::equal(one.fields.begin(), one.fields.end(), other.fields.begin(), other.fields.end(),
                    [](const auto& a, const auto& b) {
                      return a.first == b.first && a.second.sizes() == b.second.sizes() &&
                             a.second.scalar_type() == b.second.scalar_type();
                    });
}

}  // namespace

CapturedStep::CapturedStep(std::unique_ptr<StepGraph> graph,
                           const std::vector<Batch>& micro_batches, const Work& work)
    : graph_(std::move(graph)), inputs_(micro_batches) {
  for (Batch& batch : inputs_) {
    for (auto& [name, tensor] : batch.fields) tensor = tensor.clone();
  }
  graph_->Capture([this, work] { results_ = work(inputs_); });
}

bool CapturedStep::Fits(const std::vector<Batch>& micro_batches) const {
  return std::equal(inputs_.begin(), inputs_.end(), micro_batches.begin(), micro_batches.end(),
                    HaveSameShapes);
}

StepResults CapturedStep::Replay(const std::vector<Batch>& micro_batches) {
  for (size_t i = 0; i < inputs_.size(); ++i) {
    for (auto& [name, tensor] : inputs_[i].fields) tensor.copy_(micro_batches[i].at(name), true);
  }
  graph_->Replay();
  return {.metrics = results_.metrics.clone(), .gradient_norms = results_.gradient_norms.clone()};
}

}  // namespace genesis
