#pragma once

#include <memory>
#include <string>

#include "genesis/training/v1/worker_service.pb.h"
#include "trainer/distributed/rank_group.h"
#include "trainer/distributed/rank_place.h"
#include "trainer/runtime/run_control.h"
#include "trainer/runtime/run_observer.h"

namespace genesis {

class RankStoreClient;

// Calls RunTraining for one of several ranks: waits for the others and trains rank 0's job with
// them, in FP32 if any host requires it. Requires place.size > 1. Never throws.
training::v1::Finished RunRank(const training::v1::StartJob& start, const RankPlace& place,
                               const training::v1::DeviceInfo& device, RunControl& control,
                               RunObserver& observer);

// Does the same for a rank that the daemon started, described by start.rank(). The ranks find each
// other through `store`. This rank listens on the address in start.rank(), otherwise on the one
// that reaches `daemon_host`. The ranks prove to each other that they belong to this job.
training::v1::Finished RunGangRank(const training::v1::StartJob& start,
                                   const std::shared_ptr<RankStoreClient>& store,
                                   const std::string& daemon_host,
                                   const training::v1::DeviceInfo& device, RunControl& control,
                                   RunObserver& observer);

}  // namespace genesis
