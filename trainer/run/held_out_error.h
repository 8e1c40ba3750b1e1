#pragma once

#include "genesis/training/v1/job.pb.h"
#include "trainer/data/trajectory_dataset.h"
#include "trainer/models/world_model.h"

namespace genesis {

// How well the model predicts the next observation of episodes that it was not trained on, in
// float32, beside two predictors that have learnt nothing. See HeldOutError in job.proto.
training::v1::HeldOutError MeasureHeldOutError(WorldModel model, const TrajectoryDataset& dataset,
                                               at::Device device);

}  // namespace genesis
