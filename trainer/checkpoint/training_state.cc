#include "trainer/checkpoint/training_state.h"

#include <cmath>

#include "absl/strings/str_cat.h"

namespace genesis {
namespace {

// A sum is finite only if every term is (IEEE 754), and it takes one pass without temporaries;
// at::isfinite takes five. If a sum of finite terms overflows, check the elements.
bool IsFinite(const at::Tensor& tensor) {
  if (!tensor.is_floating_point()) return true;
  const at::ScalarType wide = tensor.scalar_type() == at::kDouble ? at::kDouble : at::kFloat;
  return std::isfinite(at::sum(tensor, wide).item<double>()) ||
         at::isfinite(tensor).all().item<bool>();
}

}  // namespace

std::string FirstNonFinite(const TrainingState& state) {
  state.Complete();
  for (const auto& [name, tensor] : state.model) {
    if (IsFinite(tensor)) continue;
    const bool may = state.with_infinities.contains(name);
    if (!may || at::isnan(tensor).any().item<bool>()) return name;
  }
  for (size_t i = 0; i < state.optimizer.parameters.size(); ++i) {
    for (const auto& [name, tensor] : state.optimizer.parameters[i]) {
      if (!IsFinite(tensor)) {
        return absl::StrCat("the optimizer's ", name, " of ", state.model[i].first);
      }
    }
  }
  for (const auto& [name, tensor] : state.ema) {
    if (!IsFinite(tensor)) return absl::StrCat("the average of ", name);
  }
  return "";
}

}  // namespace genesis
