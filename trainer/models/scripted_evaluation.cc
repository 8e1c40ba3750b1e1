#include "trainer/models/scripted_evaluation.h"

#include <torch/csrc/profiler/util.h>

#include <memory>
#include <string>
#include <utility>
#include <vector>

namespace genesis {
namespace {

constexpr uint64_t kSeed = 0x67656e65736973;

// A thread-local callback has no argument of ours.
thread_local int64_t counted = 0;

// Operators that count; torch warns of others that it cannot count.
bool IsProduct(const std::string& name) {
  return name == "aten::mm" || name == "aten::addmm" || name == "aten::bmm" ||
         name == "aten::baddbmm" || name == "aten::conv2d";
}

std::unique_ptr<at::ObserverContext> Count(const at::RecordFunction& function) {
  const std::string name = function.name();
  if (!IsProduct(name)) return nullptr;
  counted += static_cast<int64_t>(
      torch::profiler::impl::computeFlops(name, torch::profiler::impl::saveExtraArgs(function)));
  return nullptr;
}

thread_local std::vector<std::pair<torch::Tensor, torch::Tensor>> means;  // With their divisors.

std::unique_ptr<at::ObserverContext> Enter(const at::RecordFunction&) { return nullptr; }

void NoteMean(const at::RecordFunction& function, at::ObserverContext*) {
  const std::string name = function.name();
  if (name != "aten::nll_loss_forward" && name != "aten::nll_loss2d_forward") return;
  const auto inputs = function.inputs();
  const auto& outputs = function.outputs();
  if (inputs.size() < 4 || outputs.size() != 2 || !outputs[0].isTensor()) return;
  if (inputs[3].toInt() != at::Reduction::Mean) return;
  means.emplace_back(outputs[0].toTensor(), outputs[1].toTensor());
}

}  // namespace

ScriptedEvaluation::ScriptedEvaluation(torch::jit::Module& module, torch::Device device,
                                       const std::vector<torch::Tensor>& besides)
    : kept_module_(module, besides), kept_generators_(device) {
  kept_generators_.Seed(kSeed);
  module.eval();
}

OperationCounter::OperationCounter()
    : handle_(at::addThreadLocalCallback(at::RecordFunctionCallback(Count).needsInputs(true).scopes(
          {at::RecordScope::FUNCTION}))) {
  counted = 0;
}

DivisorWatch::DivisorWatch()
    : handle_(at::addThreadLocalCallback(at::RecordFunctionCallback(Enter, NoteMean)
                                             .needsInputs(true)
                                             .needsOutputs(true)
                                             .scopes({at::RecordScope::FUNCTION}))) {
  means.clear();
}

torch::Tensor DivisorWatch::Of(const torch::Tensor& loss) const {
  for (const auto& [mean, divisor] : means) {
    if (mean.is_same(loss)) return divisor;
  }
  return {};
}

int64_t OperationCounter::operations() const { return counted; }

}  // namespace genesis
