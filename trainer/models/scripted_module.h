#pragma once

#include <torch/script.h>

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "genesis/training/v1/job.pb.h"
#include "trainer/data/dataset.h"

namespace genesis {

// Loads a file that torch.jit.script(module).save(path) or torch.jit.trace wrote, onto the CPU, in
// float32 and in train mode. The file is a program, and may do what the worker may.
// INVALID_ARGUMENT, beginning with "model.torchscript.path", for what is no such file or holds
// nothing to train.
absl::StatusOr<torch::jit::Module> LoadScriptedModule(const std::string& path);

// The fields that forward gets, in order: those that the job names, or all but the target and the
// weight of the loss.
std::vector<std::string> ForwardInputs(const training::v1::TorchScriptSpec& spec,
                                       const Dataset& dataset);

// INVALID_ARGUMENT unless forward takes `inputs.size()` tensors.
absl::Status CheckForward(const torch::jit::Module& module, const std::string& path,
                          const std::vector<std::string>& inputs);

// While it lives the calling thread runs scripted modules as they are written. The profiling
// executor would specialise them to the number format of their first call, and fail in backward
// after a change of precision.
class PlainExecution {
 public:
  PlainExecution() : guard_(false) {}

 private:
  torch::jit::GraphOptimizerEnabledGuard guard_;
};

// The line of an exception of TorchScript that says what is wrong, without the traces around it.
std::string LastLine(const std::string& message);

}  // namespace genesis
