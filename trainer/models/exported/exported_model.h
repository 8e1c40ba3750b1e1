#pragma once

#include <torch/torch.h>

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "trainer/models/base/model.h"
#include "trainer/models/exported/exported_file.h"
#include "trainer/models/exported/graph_runner.h"
#include "trainer/models/exported/rewritten_graphs.h"

namespace genesis {

// A user's module as graphs that genesis.export created in Python: one graph computes loss and
// gradients, without Python and autograd. Parameters and buffers have the names of the module's
// state_dict(). Parameters that need no gradient are among buffers(), which stay in the format of
// the file: a graph of pure FP16 or BF16 casts them, and takes only parameters() in that format.
//
// Owner: the run. Threads: one at a time. Failure: exceptions of LibTorch, and
// std::invalid_argument if a graph does not fit the job. BuildModel tries each graph on some
// examples first.
class ExportedModel : public Model {
 public:
  // See BuildModel.
  static absl::StatusOr<std::unique_ptr<Model>> Build(const training::v1::JobSpec& spec,
                                                      const Dataset& dataset);
  ~ExportedModel() override;

  NamedTensors parameters() const override { return parameters_; }
  NamedTensors buffers() const override { return buffers_; }
  bool buffers_are_of_data() const override { return false; }
  std::vector<std::pair<std::string, std::string>> tied() const override { return file_.tied; }
  std::vector<std::string> without_gradient() const override;
  std::vector<std::pair<std::string, int64_t>> versions() const override { return file_.versions; }
  void To(torch::Device device) override;
  // Gradients of this loss are computed without a loss scale, so it serves only to recompute steps.
  torch::Tensor Loss(const Batch& batch, std::optional<torch::ScalarType> autocast) override;
  bool supports(training::v1::PrecisionMode mode) const override;
  bool has_joint_graph() const override { return true; }
  torch::Tensor AddLossAndGradients(const Batch& batch, std::optional<torch::ScalarType> autocast,
                                    const torch::Tensor& scale) override;
  std::unique_ptr<ModelState> CopyState() const override;
  torch::Tensor ExampleLosses() const override { return example_losses_; }
  NamedTensors attributes() const override;
  void PutAttributes(const NamedTensors& attributes) override;
  std::vector<MetricSum> Evaluate(const Batch& batch) override;
  bool takes_short_batches() const override { return !file_.batch_size; }
  std::vector<std::string> changed_buffers() const override { return file_.changed; }
  int64_t OperationsPerExample() const override { return operations_; }

 private:
  struct Step {
    torch::Tensor loss;
    std::vector<torch::Tensor> gradients;  // Gradients of parameters_; undefined if there is none.
  };

  ExportedModel(ExportedFile file, const training::v1::JobSpec& spec);

  // Returns the factors of the examples' losses: float32 [examples].
  torch::Tensor WeightsOf(const Batch& batch, int64_t examples) const;
  // Replaces the graphs that run by the results of `rewrite`.
  absl::Status UseGraphs(const RewrittenGraphs::Rewrite& rewrite);
  // Loads the graph once. INVALID_ARGUMENT if LibTorch cannot load it.
  absl::Status Load(const std::string& graph);
  std::vector<torch::Tensor> Run(const std::string& graph, const Batch& batch,
                                 const torch::Tensor& scale);
  // Same as Run, but throws LibTorch's exceptions unchanged, without Explain().
  std::vector<torch::Tensor> RunGraph(const std::string& graph, const Batch& batch,
                                      const torch::Tensor& scale);
  // Throws an exception that explains the error of a graph to the user. Names the value of the
  // data that the graph cannot process, if there is one.
  [[noreturn]] void Explain(const std::string& graph, const Batch& batch,
                            const std::exception& error);
  // Returns the graph for the current format of the parameters and layers in `autocast`. Throws if
  // the file has none.
  std::string GraphOf(std::optional<torch::ScalarType> autocast) const;
  // Runs the graph and applies its changes of the state.
  Step MakeStep(const std::string& graph, const Batch& batch, const torch::Tensor& scale);
  absl::Status Try(const Dataset& dataset, int64_t batch_size);

  const ExportedFile file_;
  const std::string data_path_;  // For messages.
  const bool prioritized_;
  std::optional<RewrittenGraphs> rewritten_;  // Set if UseGraphs has replaced graphs.
  std::map<std::string, std::unique_ptr<GraphRunner>> runners_;
  NamedTensors parameters_;
  NamedTensors buffers_;
  NamedTensors passing_;
  NamedTensors first_passing_;  // Initial values from the file.
  std::map<std::string, torch::Tensor> by_name_;
  std::map<std::string, size_t> parameter_numbers_;
  torch::Tensor one_;
  torch::Tensor example_losses_;
  int64_t operations_ = 0;
};

}  // namespace genesis
