#pragma once

#include <memory>
#include <string>

#include "genesis/training/v1/worker_service.pb.h"
#include "trainer/distributed/rank_group.h"
#include "trainer/distributed/rank_place.h"
#include "trainer/run/training_run.h"
#include "trainer/runtime/run_observer.h"

namespace genesis {

class RankStoreClient;

// RunTraining of one of several ranks: waits for the others, and trains with them the job that rank
// 0 was given, in FP32 where any host asks for it. Requires place.size > 1. Never throws.
training::v1::Finished RunRank(const training::v1::StartJob& start, const RankPlace& place,
                               const training::v1::DeviceInfo& device, RunControl& control,
                               RunObserver& observer);

// The same for a rank that the daemon started, as start.rank() says: the ranks find each other by
// `store`, on the address that it names or else on the one from which `daemon_host` is reached, and
// prove to each other that they are of this job.
training::v1::Finished RunGangRank(const training::v1::StartJob& start,
                                   const std::shared_ptr<RankStoreClient>& store,
                                   const std::string& daemon_host,
                                   const training::v1::DeviceInfo& device, RunControl& control,
                                   RunObserver& observer);

}  // namespace genesis
