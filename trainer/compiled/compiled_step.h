#pragma once

#include <torch/torch.h>

#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "trainer/compiled/step_description.h"
#include "trainer/models/base/model.h"

namespace torch::inductor {
class AOTIModelContainerRunner;
}

namespace genesis {

// Forward and backward of one micro-batch as precompiled machine code (docs/compiled_step.md):
// takes the parameters, buffers and batch, and returns the loss and the gradients. The rest of the
// step is the same as without it.
//
// Owner: the job's CompiledSteps; the model outlives it. Threads: one. Failure: exceptions of
// LibTorch from Run.
class CompiledStep {
 public:
  // Loads the compiled step of a package. INVALID_ARGUMENT if it was compiled for a step other than
  // `description`, with the first line that differs; DATA_LOSS if the file is not a package;
  // INTERNAL if it cannot be loaded.
  static absl::StatusOr<std::unique_ptr<CompiledStep>> Load(const std::string& path,
                                                            const StepDescription& description,
                                                            const Model& model);
  ~CompiledStep();

  // Returns whether the batch is contiguous and has the shapes of the compiled step.
  bool Fits(const Batch& batch) const;

  // Returns the mean loss of the batch, and adds the gradients of that loss times `scale` (float32,
  // no dimensions) to those of the parameters. Requires Fits(batch), and parameters in the format
  // of the step.
  torch::Tensor Run(const Batch& batch, const torch::Tensor& scale);

 private:
  CompiledStep(std::unique_ptr<torch::inductor::AOTIModelContainerRunner> runner,
               const Model& model, const std::string& text);

  const std::unique_ptr<torch::inductor::AOTIModelContainerRunner> runner_;
  std::vector<torch::Tensor> parameters_;
  std::vector<torch::Tensor> buffers_;
  std::map<std::string, std::vector<int64_t>> field_shapes_;
};

}  // namespace genesis
