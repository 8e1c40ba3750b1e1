#pragma once

#include <torch/torch.h>

#include <cstdint>
#include <map>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "genesis/training/v1/job.pb.h"
#include "trainer/models/base/model.h"

namespace genesis {

// Inputs or outputs of a prediction by name, each with the batch as first dimension.
using BatchTensors = std::map<std::string, torch::Tensor>;

// A model that predicts, with weights that can be replaced. Each kind of model that predicts has a
// class that implements this interface, and a row in Build.
//
// Owner: the predictor. Threads: one, without gradients. Failure: INVALID_ARGUMENT with the inputs
// that the model accepts; exceptions of LibTorch.
class ServedModel {
 public:
  virtual ~ServedModel() = default;

  // Builds the model of a job with the sizes of `weights`, and loads them. FAILED_PRECONDITION if
  // this kind of model does not predict.
  static absl::StatusOr<std::unique_ptr<ServedModel>> Build(const training::v1::JobSpec& spec,
                                                            const NamedTensors& weights);

  // Replaces the weights. After an error they are as before.
  virtual absl::Status Load(const NamedTensors& weights) = 0;
  // Checks the inputs of one call, of any types and the same batch size, and converts them to the
  // types of the model.
  virtual absl::Status Check(BatchTensors& inputs) const = 0;
  // Returns the outputs for inputs of one or several calls that Check accepted.
  virtual absl::StatusOr<BatchTensors> Predict(const BatchTensors& inputs) = 0;
};

// Maximum size of the outputs of a call, so that a gRPC client with default settings receives them.
inline constexpr int64_t kMaxOutputBytes = (int64_t{4} << 20) - 65536;
// Maximum steps of a rollout.
inline constexpr int64_t kMaxRolloutSteps = 1024;

}  // namespace genesis
