#pragma once

#include <torch/torch.h>

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "trainer/data/dataset.h"

namespace genesis {

// An ExportedFile is a module that genesis.export wrote: graphs of ATen operators, one for each
// precision, one for evaluation and perhaps one for predictions, initial weights, and metadata by
// name (docs/exported_modules.md). Everything is checked before LibTorch reads the file: only known
// records, only allowed operators in graphs, matching sizes. It contains no code and no pickle.
//
// Owner: a scope. Threads: one. Failure: INVALID_ARGUMENT, with path and cure, or DATA_LOSS.
struct ExportedFile {
  enum class Role {
    kTrained,   // A parameter that gets gradients.
    kKept,      // A buffer or a frozen parameter, kept in checkpoints.
    kPassing,   // A buffer that is not in state_dict().
    kConstant,  // A tensor inside one graph.
  };
  struct NamedTensor {
    std::string name;
    Role role = Role::kKept;
    torch::Tensor tensor;
  };

  static absl::StatusOr<ExportedFile> Open(const std::string& path);
  // Returns the batch_size of a file without reading its tensors and graphs.
  static absl::StatusOr<std::optional<int64_t>> BatchSizeOf(const std::string& path);

  std::string path;
  std::string torch;                 // Version of the torch that exported it.
  std::string module;                // Class name.
  std::set<std::string> precisions;  // Precisions with a graph: "FP32", "MIXED_BF16", ...
  // Why genesis.export could not write a graph of a precision, by precision.
  std::map<std::string, std::string> without;
  // The only batch size of the graphs, if they are fixed to one.
  std::optional<int64_t> batch_size;
  std::vector<Field> fields;         // In the order of the graphs' inputs.
  std::vector<NamedTensor> tensors;  // In the same order; constants last.
  // Additional names in the state_dict(), each with the name whose tensor it shares.
  std::vector<std::pair<std::string, std::string>> tied;
  // Versions of the module and its submodules, by name (`state_dict()._metadata`).
  std::vector<std::pair<std::string, int64_t>> versions;
  // Names of the constants of each graph, keyed by the name of the graph.
  std::map<std::string, std::vector<std::string>> constants;
  // Whether training graphs take a weight per example after the fields, float32 [B], and return the
  // loss of each example after the mean.
  bool by_example = false;
  // Number of terms of the held-out loss that are not means over the examples. If there are any,
  // the graph returns the loss, the term that is a mean, and then kQuotientOutputs values for each
  // other term: the fields of its MetricSum except the name.
  size_t held_out_quotients = 0;
  std::vector<std::string> gradients;  // Trained tensors on which the loss depends, in order.
  std::vector<std::string> changed;    // State that a step changes, in order.
  // Names of the fields that the graph of predictions takes, and of the tensors that it returns, in
  // order. Empty if the file has no such graph.
  std::vector<std::string> prediction_inputs;
  std::vector<std::string> prediction_outputs;
};

inline constexpr size_t kQuotientOutputs = 6;

// The graph of the held-out loss.
inline constexpr char kEvaluationGraph[] = "evaluation";
// The graph of predictions.
inline constexpr char kPredictionGraph[] = "prediction";

}  // namespace genesis
