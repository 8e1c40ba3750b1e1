#pragma once

#include <string>

#include "absl/status/status.h"
#include "trainer/models/base/model.h"

namespace genesis {

// Loads the weights of a file (see ReadWeights) into a model on the CPU that was not trained yet.
// The file must have the names, shapes and types of the model's state_dict(). Any floating-point
// type matches any other. Values must be finite, except for infinities in the model's own buffers,
// such as masks. Second names of tied tensors, and buffers that are set from the data, may be
// missing.
//
// INVALID_ARGUMENT, beginning with "model.initial_weights", names the first mismatching tensors of
// each kind. The model is then unchanged.
absl::Status LoadInitialWeights(const std::string& path, Model& model);
// Same for weights in memory, for a model that predicts. The error lists only the mismatches.
absl::Status PutWeights(const NamedTensors& weights, Model& model);

}  // namespace genesis
