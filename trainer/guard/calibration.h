#pragma once

#include <vector>

#include "genesis/training/v1/precision.pb.h"
#include "trainer/step/training_session.h"

namespace genesis {

struct Calibration {
  std::vector<training::v1::CalibrationResult> results;  // One per mode, FP32 first.
  training::v1::PrecisionMode chosen = training::v1::PRECISION_MODE_FP32;
  std::string reason;            // One sentence: why the mode was chosen, with its measurements.
  training::v1::LossCurve fp32;  // FP32's losses and times, to compare the first steps with.
};

// Measures modes: runs a few steps in FP32 and in each of `modes`, on the job's model and data and
// from one state. Chooses the fastest mode whose loss agrees with FP32's (within 5 %) and that
// overflows in at most 5 % of its steps once its scale has adapted, if it is 5 % faster than FP32.
// Restores all but the mode, which is then the chosen one. Requires that every step has been read.
Calibration Calibrate(TrainingSession& session,
                      const std::vector<training::v1::PrecisionMode>& modes, int steps);

// Duration in seconds of the fastest of a few steps.
struct StepTimes {
  double fp32 = 0;
  double reduced = 0;
};

// Times a few steps in FP32 and in the current mode, in turn, so that other load on the machine
// affects both. Restores everything, so the run is unaffected. Requires that the metrics of every
// step have been read.
StepTimes TimeBesideFp32(TrainingSession& session, int64_t step);

// Replaces the measurement with rank 0's, because times differ from rank to rank.
void TakeFromFirst(RankGroup& ranks, Calibration& calibration);
void TakeFromFirst(RankGroup& ranks, StepTimes& times);

}  // namespace genesis
