#pragma once

#include <torch/torch.h>

#include <exception>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "trainer/models/exported/exported_file.h"

namespace torch::nativert {
class ModelRunnerHandle;
}

namespace genesis {

// A graph of an exported file, loaded into LibTorch. Contains no weights.
//
// Owner: the model. Threads: one at a time.
class GraphRunner {
 public:
  // Loads the graph named `graph` from `path`, which is the path of `file` or of its rewritten
  // graphs. INVALID_ARGUMENT if LibTorch cannot load it.
  static absl::StatusOr<std::unique_ptr<GraphRunner>> Load(const ExportedFile& file,
                                                           const std::string& graph,
                                                           const std::string& path);
  ~GraphRunner();
  GraphRunner(const GraphRunner&) = delete;
  GraphRunner& operator=(const GraphRunner&) = delete;

  // Returns the outputs of the graph, which are writable and share no memory with inputs. Throws
  // LibTorch's exceptions, and std::invalid_argument if an output is not a tensor.
  std::vector<torch::Tensor> Run(const std::vector<torch::Tensor>& inputs);

 private:
  GraphRunner(std::string name, std::unique_ptr<torch::nativert::ModelRunnerHandle> runner);

  const std::string name_;  // For messages.
  const std::unique_ptr<torch::nativert::ModelRunnerHandle> runner_;
};

// Returns the message of an operator's error, without the operator and its arguments, which
// nativert prints before the message.
std::string GraphErrorText(const std::exception& error);

// Returns the cure for errors of graphs that another version of torch exported, because they may
// need features that this LibTorch lacks. Empty if the versions are the same.
std::string CureOfAnotherTorch(const ExportedFile& file);

}  // namespace genesis
