#include "trainer/checkpoint/training_state.h"

#include "absl/strings/str_cat.h"

namespace genesis {
namespace {

bool IsFinite(const at::Tensor& tensor) { return at::isfinite(tensor).all().item<bool>(); }

}  // namespace

std::string FirstNonFinite(const TrainingState& state) {
  for (const auto& [name, tensor] : state.model) {
    if (!IsFinite(tensor)) return name;
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
