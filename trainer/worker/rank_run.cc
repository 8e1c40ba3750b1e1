#include "trainer/worker/rank_run.h"

#include <string>

#include "trainer/distributed/rank_group.h"
#include "trainer/runtime/run_failure.h"

namespace genesis {
namespace {

using training::v1::Finished;
using training::v1::StartJob;

bool IsFp32(const StartJob& start) {
  return start.precision().mode() == training::v1::PRECISION_MODE_FP32;
}

// One job for all ranks: as rank 0 was given it, or a rank on a host that allows no reduced
// precision, for any no wins. Where to resume from is what rank 0 sees: another may see a file
// later.
StartJob Common(RankGroup& ranks, const StartJob& own) {
  StartJob common;
  StartJob first;
  for (const std::string& text : ranks.FromAll(own.SerializeAsString())) {
    StartJob told;
    told.ParseFromString(text);
    if (!common.has_spec()) common = first = told;
    if (IsFp32(told) && !IsFp32(common)) common = told;
  }
  *common.mutable_resume_from() = first.resume_from();
  return common;
}

}  // namespace

Finished RunRank(const StartJob& start, const RankPlace& place,
                 const training::v1::DeviceInfo& device, RunControl& control,
                 RunObserver& observer) {
  try {
    RankGroup ranks(place);
    StartJob job = Common(ranks, start);
    // One file of it is enough.
    if (!ranks.first()) job.mutable_spec()->clear_trace();
    return RunTraining(job, device, control, observer, &ranks);
  } catch (const RunFailure& failure) {
    return FailedRun(failure);
  }
}

}  // namespace genesis
