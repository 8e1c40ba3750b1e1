#include "trainer/models/base/operation_counter.h"

#include <torch/csrc/profiler/util.h>

#include <memory>
#include <string>

namespace genesis {
namespace {

// A thread-local callback takes no user data.
thread_local int64_t counted = 0;

// Returns whether an operator counts; torch warns about others that it cannot count.
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

}  // namespace

OperationCounter::OperationCounter()
    : handle_(at::addThreadLocalCallback(at::RecordFunctionCallback(Count).needsInputs(true).scopes(
          {at::RecordScope::FUNCTION}))) {
  counted = 0;
}

int64_t OperationCounter::operations() const { return counted; }

}  // namespace genesis
