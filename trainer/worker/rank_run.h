#pragma once

#include "base/environment.h"
#include "genesis/training/v1/worker_service.pb.h"
#include "trainer/distributed/rank_group.h"
#include "trainer/distributed/rank_place.h"
#include "trainer/run/training_run.h"
#include "trainer/runtime/run_observer.h"

namespace genesis {

// As the job says, and the environment: GENESIS_SHARED_MEMORY=false keeps to Gloo. Throws RunFailure
// for another value.
RankOptions RankOptionsOf(const training::v1::JobSpec& spec, const Environment& environment);

// RunTraining of one of several ranks: waits for the others, and trains with them the job that rank
// 0 was given, in FP32 where any host asks for it. Requires place.size > 1. Never throws.
training::v1::Finished RunRank(const training::v1::StartJob& start, const RankPlace& place,
                               const training::v1::DeviceInfo& device, RunControl& control,
                               RunObserver& observer);

}  // namespace genesis
