#pragma once

#include "genesis/training/v1/worker_service.pb.h"
#include "trainer/checkpoint/training_state.h"
#include "trainer/distributed/rank_group.h"
#include "trainer/guard/precision_guard.h"
#include "trainer/runtime/run_observer.h"
#include "trainer/step/training_session.h"

namespace genesis {

// Chooses the mode of a run: as the daemon requires, as AUTO measures, or as the `resumed` state
// had it, which is nullptr for a new job. Begins the guard in it and logs the reason. All ranks
// call it.
training::v1::EffectivePrecision ChoosePrecision(const training::v1::StartJob& start,
                                                 const training::v1::DeviceInfo& device,
                                                 const TrainingState* resumed,
                                                 TrainingSession& session, PrecisionGuard& guard,
                                                 RankGroup& ranks, RunObserver& observer);

}  // namespace genesis
