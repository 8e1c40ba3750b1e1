#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <set>
#include <vector>

#include "genesis/training/v1/precision.pb.h"
#include "genesis/training/v1/worker_service.pb.h"

namespace genesis {

// The state of the precision policy, kept in checkpoints because the next decision depends on it.
struct PolicyState {
  int32_t promotions = 0;   // Promotions so far.
  int64_t clean_steps = 0;  // Steps applied since the last skipped step or change of precision.
  // The modes from which the job has fallen back, newest last.
  std::vector<training::v1::PrecisionMode> left;
};

// The choice of the next precision: down an ordered list of fallbacks, and up again after clean
// steps, a limited number of times.
//
// Owner: the run. Threads: one.
class PrecisionPolicy {
 public:
  using Mode = training::v1::PrecisionMode;

  // `allowed`: modes that gate and device allow in addition to FP32, which is always allowed.
  PrecisionPolicy(const training::v1::PrecisionSpec& spec, std::vector<Mode> allowed, Mode mode);

  Mode mode() const { return mode_; }
  // Returns the mode to fall back to from the current one; nullopt in FP32.
  std::optional<Mode> Fallback() const;
  // Returns the mode before the last fallback once it may be tried again.
  std::optional<Mode> Promotion() const;

  // Disables promotions from now on.
  void ForbidPromotion() { promotion_forbidden_ = true; }

  void AddCleanStep() { ++state_.clean_steps; }
  void TroubleSeen() { state_.clean_steps = 0; }
  void FallBackTo(Mode mode);
  void Promote();

  const PolicyState& state() const { return state_; }
  // Restores the state of a run in `mode` if it began in the same mode as this one. Otherwise does
  // nothing.
  void LoadState(Mode mode, const PolicyState& state);

 private:
  bool IsAllowed(Mode mode) const;

  const training::v1::PrecisionSpec spec_;
  const std::vector<Mode> allowed_;
  Mode mode_;
  PolicyState state_;
  bool promotion_forbidden_ = false;
};

// Returns the modes that gate and device allow for a job, as determined by the daemon.
std::vector<training::v1::PrecisionMode> AllowedModes(const training::v1::StartJob& start);

// Restricts a job to the modes that its model supports. If its initial mode is not among them, sets
// that to FP32.
void KeepModes(training::v1::StartJob& start,
               const std::function<bool(training::v1::PrecisionMode)>& supports);

// Returns the modes that a job with the initial `mode` may reach, including FP32. AUTO may begin in
// each allowed mode.
std::set<training::v1::PrecisionMode> ReachableModes(
    const training::v1::PrecisionSpec& spec,
    const std::vector<training::v1::PrecisionMode>& allowed, training::v1::PrecisionMode mode);

}  // namespace genesis
