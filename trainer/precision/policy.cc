#include "trainer/precision/policy.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/text/enum_names.h"
#include "config/precision/precision.h"

namespace genesis {

using training::v1::PRECISION_MODE_AUTO;
using training::v1::PRECISION_MODE_FP32;
using training::v1::PRECISION_MODE_MIXED_BF16;

PrecisionPolicy::PrecisionPolicy(const training::v1::PrecisionSpec& spec, std::vector<Mode> allowed,
                                 Mode mode)
    : spec_(spec), allowed_(std::move(allowed)), mode_(mode) {}

bool PrecisionPolicy::IsAllowed(Mode mode) const {
  return mode == PRECISION_MODE_FP32 ||
         std::find(allowed_.begin(), allowed_.end(), mode) != allowed_.end();
}

std::optional<PrecisionPolicy::Mode> PrecisionPolicy::Fallback() const {
  if (mode_ == PRECISION_MODE_FP32) return std::nullopt;
  std::vector<Mode> candidates;
  for (const int fallback : spec_.fallbacks()) candidates.push_back(static_cast<Mode>(fallback));
  if (candidates.empty()) candidates.push_back(PRECISION_MODE_MIXED_BF16);
  candidates.push_back(PRECISION_MODE_FP32);
  for (const Mode candidate : candidates) {
    const bool left =
        std::find(state_.left.begin(), state_.left.end(), candidate) != state_.left.end();
    if (candidate != mode_ && !left && IsAllowed(candidate)) return candidate;
  }
  return std::nullopt;
}

std::optional<PrecisionPolicy::Mode> PrecisionPolicy::Promotion() const {
  const bool due = !promotion_forbidden_ && spec_.promote_after_steps() > 0 &&
                   state_.clean_steps >= spec_.promote_after_steps() && !state_.left.empty() &&
                   state_.promotions < spec_.max_promotions();
  if (!due || !IsAllowed(state_.left.back())) return std::nullopt;
  return state_.left.back();
}

void PrecisionPolicy::FallBackTo(Mode mode) {
  state_.left.push_back(mode_);
  state_.clean_steps = 0;
  mode_ = mode;
}

void PrecisionPolicy::Promote() {
  mode_ = state_.left.back();
  state_.left.pop_back();
  state_.clean_steps = 0;
  ++state_.promotions;
}

void PrecisionPolicy::LoadState(Mode mode, const PolicyState& state) {
  const Mode first = state.left.empty() ? mode : state.left.front();
  if (first != mode_) return;
  mode_ = mode;
  state_ = state;
}

std::vector<PrecisionPolicy::Mode> AllowedModes(const training::v1::StartJob& start) {
  std::vector<PrecisionPolicy::Mode> modes;
  for (const int mode : start.allowed_modes())
    modes.push_back(static_cast<PrecisionPolicy::Mode>(mode));
  return modes;
}

void KeepModes(training::v1::StartJob& start,
               const std::function<bool(PrecisionPolicy::Mode)>& supports) {
  const auto lacks = [&supports](int mode) {
    return !supports(static_cast<PrecisionPolicy::Mode>(mode));
  };
  auto& allowed = *start.mutable_allowed_modes();
  allowed.erase(std::remove_if(allowed.begin(), allowed.end(), lacks), allowed.end());
  const PrecisionPolicy::Mode mode = start.precision().mode();
  if (!lacks(mode)) return;
  start.mutable_precision()->set_mode(PRECISION_MODE_FP32);
  start.mutable_precision()->set_reason(
      absl::StrCat("FP32: the model has no graph of ", ShortEnumName(mode)));
}

std::set<PrecisionPolicy::Mode> ReachableModes(const training::v1::PrecisionSpec& spec,
                                               const std::vector<PrecisionPolicy::Mode>& allowed,
                                               PrecisionPolicy::Mode mode) {
  std::set<PrecisionPolicy::Mode> reached = {PRECISION_MODE_FP32};
  const bool automatic = mode == PRECISION_MODE_AUTO;
  for (const PrecisionPolicy::Mode first : automatic ? allowed : std::vector{mode}) {
    reached.insert(first);
    PrecisionPolicy policy(spec, allowed, first);
    while (const auto next = policy.Fallback()) {
      policy.FallBackTo(*next);
      reached.insert(*next);
    }
  }
  return reached;
}

}  // namespace genesis
