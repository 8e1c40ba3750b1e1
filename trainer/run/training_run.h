#pragma once

#include "genesis/training/v1/worker_service.pb.h"
#include "trainer/runtime/run_control.h"
#include "trainer/runtime/run_observer.h"

namespace genesis {

class RankGroup;

// Runs one job from data to final checkpoint on the calling thread and returns how it ended. Never
// throws: exceptions of LibTorch become Finished.failure only here. Each of several ranks
// calls it with the same `start`, and rank 0 writes the checkpoints.
training::v1::Finished RunTraining(const training::v1::StartJob& start,
                                   const training::v1::DeviceInfo& device, RunControl& control,
                                   RunObserver& observer, RankGroup& ranks);

}  // namespace genesis
