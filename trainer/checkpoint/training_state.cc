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
  for (size_t i = 0; i < state.optimizer.size(); ++i) {
    if (!IsFinite(state.optimizer[i].exp_avg) || !IsFinite(state.optimizer[i].exp_avg_sq)) {
      return absl::StrCat("the optimizer's moments of ", state.model[i].first);
    }
  }
  return "";
}

}  // namespace genesis
