#pragma once

#include <string>

#include "absl/status/status.h"
#include "trainer/models/model.h"

namespace genesis {

// Sets the weights of a model, which is on the CPU and was not trained yet, to those of a file (see
// ReadWeights). The file has the names, shapes and types of the model's state_dict(), where any
// floating-point type stands for any other, and its values are finite; only infinities that the
// model's own buffers have, as masks do, may be there. Missing may be second names of tied tensors,
// and buffers that the data makes.
//
// INVALID_ARGUMENT, beginning with "model.initial_weights", which names the first tensors of each
// kind that do not fit; the model is as it was then.
absl::Status LoadInitialWeights(const std::string& path, Model& model);

}  // namespace genesis
