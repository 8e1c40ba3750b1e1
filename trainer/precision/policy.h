#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <set>
#include <vector>

#include "genesis/training/v1/precision.pb.h"
#include "genesis/training/v1/worker_service.pb.h"

namespace genesis {

// Where the precision policy stands; kept in checkpoints, for what is tried next depends on it.
struct PolicyState {
  int32_t promotions = 0;   // Made so far.
  int64_t clean_steps = 0;  // Applied since the last change of precision.
  // The modes that were left for a fallback, newest last.
  std::vector<training::v1::PrecisionMode> left;
};

// Which precision comes next: down an ordered list of fallbacks, and up again after clean steps, a
// limited number of times.
//
// Owner: the run. Threads: one.
class PrecisionPolicy {
 public:
  using Mode = training::v1::PrecisionMode;

  // `allowed`: what gate and device let run besides FP32, which always may.
  PrecisionPolicy(const training::v1::PrecisionSpec& spec, std::vector<Mode> allowed, Mode mode);

  Mode mode() const { return mode_; }
  // Where to go from the present mode; nullopt in FP32.
  std::optional<Mode> Fallback() const;
  // The mode before the last fallback, once it may be tried again.
  std::optional<Mode> Promotion() const;

  // From now on there is only down.
  void ForbidPromotion() { promotion_forbidden_ = true; }

  void AddCleanStep() { ++state_.clean_steps; }
  void TroubleSeen() { state_.clean_steps = 0; }
  void FallBackTo(Mode mode);
  void Promote();

  const PolicyState& state() const { return state_; }
  // Goes on where a run stood in `mode`, if it began in this one's mode; another says nothing of
  // it.
  void LoadState(Mode mode, const PolicyState& state);

 private:
  bool IsAllowed(Mode mode) const;

  const training::v1::PrecisionSpec spec_;
  const std::vector<Mode> allowed_;
  Mode mode_;
  PolicyState state_;
  bool promotion_forbidden_ = false;
};

// The modes that gate and device let a job change to, as the daemon found them.
std::vector<training::v1::PrecisionMode> AllowedModes(const training::v1::StartJob& start);

// Leaves a job the modes that its model can be trained in; FP32 where it was to begin in another.
void KeepModes(training::v1::StartJob& start,
               const std::function<bool(training::v1::PrecisionMode)>& supports);

// The modes that a job may come to that is to begin in `mode`, FP32 among them; AUTO may begin in
// each that is allowed.
std::set<training::v1::PrecisionMode> ReachableModes(
    const training::v1::PrecisionSpec& spec,
    const std::vector<training::v1::PrecisionMode>& allowed, training::v1::PrecisionMode mode);

}  // namespace genesis
