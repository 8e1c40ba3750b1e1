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
// precision and one for evaluation, initial weights, and what belongs to them by name
// (docs/exported_modules.md). Everything is checked before LibTorch sees the file: its records are
// known ones, its graphs name allowed operators alone, sizes agree. It holds no code and no pickle.
//
// Owner: a scope. Threads: one. Failure: INVALID_ARGUMENT with the path and what is accepted.
struct ExportedFile {
  enum class Role {
    kTrained,   // A parameter that gets gradients.
    kKept,      // A buffer, or a frozen parameter: in checkpoints.
    kPassing,   // A buffer that is not in state_dict().
    kConstant,  // A tensor that one graph holds.
  };
  struct NamedTensor {
    std::string name;
    Role role = Role::kKept;
    torch::Tensor tensor;
  };

  static absl::StatusOr<ExportedFile> Open(const std::string& path);
  // The batch_size of a file, whose tensors and graphs are not looked at.
  static absl::StatusOr<std::optional<int64_t>> BatchSizeOf(const std::string& path);

  std::string path;
  std::string module;                 // The name of its class.
  std::set<std::string> precisions;   // "FP32", "MIXED_BF16", ...: the graphs that are there.
  std::optional<int64_t> batch_size;  // Of the only batches that the graphs take.
  std::vector<Field> fields;          // In the order of the graphs' inputs.
  std::vector<NamedTensor> tensors;   // Likewise; constants last.
  // Names that a state_dict() has besides, each with the one whose tensor it shares.
  std::vector<std::pair<std::string, std::string>> tied;
  // Version numbers of the module and its parts, by their names.
  std::vector<std::pair<std::string, int64_t>> versions;
  // The constants of each graph, by name.
  std::map<std::string, std::vector<std::string>> constants;
  // Whether graphs take a weight of each example behind the fields, float32 [B], and give the loss
  // of each behind the mean, those of training.
  bool by_example = false;
  // Parts of the held-out loss that are not means over the examples. Where there are any, the graph
  // gives behind the loss the part that is one, then each of these and what it was divided by.
  size_t held_out_quotients = 0;
  std::vector<std::string> gradients;  // Trained tensors that the loss depends on, in order.
  std::vector<std::string> changed;    // State that a step changes, in order.
};

// The graph of the held-out loss.
inline constexpr char kEvaluationGraph[] = "evaluation";

}  // namespace genesis
