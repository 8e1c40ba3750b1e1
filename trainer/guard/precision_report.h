#pragma once

#include <optional>
#include <string>

#include "genesis/training/v1/worker_service.pb.h"
#include "trainer/models/base/model.h"
#include "trainer/step/training_session.h"

namespace genesis {

// Reports what a mode means on this machine and for this model. With autocast, runs one forward
// pass of a batch of the job's size under an observer of operators, so the lists contain the
// operators that actually ran. Leaves model and random generators unchanged.
training::v1::PrecisionReport ReportPrecision(TrainingSession& session,
                                              const training::v1::DeviceInfo& device);

// Returns the hardware of a mode: "Hopper tensor cores (sm_90)", "avx2 (emulates BF16)".
std::string HardwareOf(training::v1::PrecisionMode mode, const training::v1::DeviceInfo& device);

}  // namespace genesis
