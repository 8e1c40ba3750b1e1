#pragma once

#include <torch/torch.h>

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "trainer/data/dataset.h"
#include "trainer/models/base/model.h"
#include "trainer/models/exported/exported_file.h"
#include "trainer/models/exported/graph_runner.h"

namespace genesis {

// The prediction graph of an exported file, with its weights in FP32 on the CPU: initially the
// weights of the file.
//
// Owner: the process that computes predictions. Threads: one.
class PredictionGraph {
 public:
  // Returns FAILED_PRECONDITION if the file has no such graph; otherwise as ExportedFile::Open.
  static absl::StatusOr<std::unique_ptr<PredictionGraph>> Open(const std::string& path);

  // Sets parameters and buffers by their names in state_dict(), and buffers outside of it if
  // `weights` has them. Ignores other names. INVALID_ARGUMENT names the first that is missing or
  // has another shape or type; no weight has changed then.
  absl::Status Load(const NamedTensors& weights);

  // The fields of the inputs, in the order of the graph.
  const std::vector<Field>& inputs() const { return inputs_; }
  // The names of the outputs, in the order of the graph.
  const std::vector<std::string>& outputs() const { return file_.prediction_outputs; }
  // The only batch size that the graph accepts; nullopt if it accepts any.
  std::optional<int64_t> batch_size() const { return file_.batch_size; }

  // Returns the outputs, tensors [N, ...], in the order of outputs(). Takes a tensor [N, ...] on a
  // CPU for each of inputs(), with its type; N is at least 1, or the only batch size of the file.
  // INVALID_ARGUMENT names an input that is missing, unknown or of another shape or type, or has
  // torch's error for unusable values. RESOURCE_EXHAUSTED without memory, INTERNAL for bad outputs.
  absl::StatusOr<NamedTensors> Run(const std::map<std::string, torch::Tensor>& inputs);

 private:
  PredictionGraph(ExportedFile file, std::unique_ptr<GraphRunner> runner);

  // Returns the inputs in the order of the graph.
  absl::StatusOr<std::vector<torch::Tensor>> Check(
      const std::map<std::string, torch::Tensor>& inputs) const;
  // Returns "observation [N, 3] float32, action [N, 2] float32".
  std::string Accepted() const;

  const ExportedFile file_;
  const std::unique_ptr<GraphRunner> runner_;
  std::vector<Field> inputs_;
  std::vector<torch::Tensor> weights_;  // In the order of the graph, with its constants.
};

}  // namespace genesis
