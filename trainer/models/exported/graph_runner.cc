#include "trainer/models/exported/graph_runner.h"

#include <c10/util/Logging.h>
#include <torch/nativert/ModelRunnerHandle.h>
#include <torch/version.h>

#include <algorithm>
#include <stdexcept>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "base/text/field_error.h"
#include "base/text/text.h"
#include "trainer/runtime/torch_errors.h"

namespace genesis {
namespace {

bool SharesMemory(const torch::Tensor& tensor, const std::vector<torch::Tensor>& others) {
  return std::any_of(others.begin(), others.end(), [&](const torch::Tensor& other) {
    return other.storage().data() == tensor.storage().data();
  });
}

// Returns a writable tensor of the same memory: nativert runs in inference mode, whose tensors are
// read-only.
torch::Tensor AsNormalTensor(const torch::Tensor& tensor) {
  return torch::empty({0}, tensor.options())
      .set_(tensor.storage(), tensor.storage_offset(), tensor.sizes(), tensor.strides());
}

// A scope without LibTorch's warnings: for each graph, nativert logs the operators for which it has
// no own kernels, although it can run them.
class QuietLog {
 public:
  QuietLog() : level_(FLAGS_caffe2_log_level) { FLAGS_caffe2_log_level = c10::GLOG_ERROR; }
  ~QuietLog() { FLAGS_caffe2_log_level = level_; }
  QuietLog(const QuietLog&) = delete;
  QuietLog& operator=(const QuietLog&) = delete;

 private:
  const int level_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<GraphRunner>> GraphRunner::Load(const ExportedFile& file,
                                                               const std::string& graph,
                                                               const std::string& path) {
  try {
    const QuietLog quiet;
    return std::unique_ptr<GraphRunner>(
        new GraphRunner(absl::StrCat("the graph ", graph, " of ", file.path),
                        std::make_unique<torch::nativert::ModelRunnerHandle>(path, graph)));
  } catch (const std::exception& error) {
    const std::string cure = CureOfAnotherTorch(file);
    // Bound the error, which may repeat names of arbitrary length from the file.
    return absl::InvalidArgumentError(absl::StrCat(
        "model.exported.path is ", file.path, ", whose graph ", graph, " LibTorch cannot load: ",
        cure.empty() ? "the file was changed after genesis.export wrote it, or damaged; export the "
                       "module again"
                     : cure,
        " (LibTorch says: ", OneLine(TorchText(error), kMaxNameBytes), ")"));
  }
}

GraphRunner::GraphRunner(std::string name,
                         std::unique_ptr<torch::nativert::ModelRunnerHandle> runner)
    : name_(std::move(name)), runner_(std::move(runner)) {}

GraphRunner::~GraphRunner() = default;

std::vector<torch::Tensor> GraphRunner::Run(const std::vector<torch::Tensor>& inputs) {
  const torch::NoGradGuard no_grad;
  std::vector<torch::Tensor> outputs;
  for (torch::IValue& output : runner_->runWithFlatInputsAndOutputs(
           std::vector<torch::IValue>(inputs.begin(), inputs.end()))) {
    if (!output.isTensor()) {
      throw std::invalid_argument(
          absl::StrCat("model.exported: ", name_, " returns a value that is not a tensor"));
    }
    torch::Tensor tensor = std::move(output).toTensor();
    outputs.push_back(SharesMemory(tensor, inputs) ? tensor.clone() : AsNormalTensor(tensor));
  }
  return outputs;
}

std::string GraphErrorText(const std::exception& error) {
  const std::string text = TorchText(error);
  return std::string(absl::StripAsciiWhitespace(text.substr(text.rfind("\n\n") + 1)));
}

std::string CureOfAnotherTorch(const ExportedFile& file) {
  if (file.torch == TORCH_VERSION) return "";
  return absl::StrCat("torch ", QuoteValue(file.torch), " exported it and this worker runs ",
                      TORCH_VERSION, "; export the module again with torch==", TORCH_VERSION);
}

}  // namespace genesis
