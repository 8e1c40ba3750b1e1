#pragma once

#include "genesis/training/v1/worker_service.pb.h"
#include "trainer/checkpoint/training_state.h"
#include "trainer/distributed/rank_group.h"
#include "trainer/guard/precision_guard.h"
#include "trainer/runtime/run_observer.h"
#include "trainer/step/training_session.h"

namespace genesis {

// Returns the mode in which a state is restored before ChoosePrecision.
training::v1::PrecisionMode ModeBeforeChoice(const training::v1::StartJob& start);

// Returns the mode of a run with the reason: the daemon's mode, for AUTO the measured mode or that
// of the `resumed` state (nullptr for a new job), or the mode that a job fell back to. Calls
// guard.Begin() and logs the reason. All ranks call it.
training::v1::EffectivePrecision ChoosePrecision(const training::v1::StartJob& start,
                                                 const training::v1::DeviceInfo& device,
                                                 const TrainingState* resumed,
                                                 TrainingSession& session, PrecisionGuard& guard,
                                                 RankGroup& ranks, RunObserver& observer);

}  // namespace genesis
