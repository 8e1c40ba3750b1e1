#pragma once

#include <torch/script.h>

#include <cstdint>
#include <exception>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "trainer/models/frozen_parameter.h"
#include "trainer/models/model.h"

namespace genesis {

// The user's own module, run as it is written, in eager mode. Parameters and buffers carry the keys
// of the Python module's state_dict(). Parameters that need no gradient are among buffers(): kept
// in checkpoints, not trained.
//
// Owner: the run. Threads: one at a time. Failure: exceptions of LibTorch and of the module, and
// std::invalid_argument where the module does not fit the job, DataFault where an example does not
// fit the module; BuildModel has tried it on some examples before.
class ScriptedModel : public Model {
 public:
  // See BuildModel.
  static absl::StatusOr<std::unique_ptr<Model>> Build(const training::v1::JobSpec& spec,
                                                      const Dataset& dataset);

  NamedTensors parameters() const override { return parameters_; }
  NamedTensors buffers() const override;
  bool buffers_are_of_data() const override { return false; }
  std::vector<std::pair<std::string, std::string>> tied() const override { return tied_; }
  std::vector<std::string> without_gradient() const override { return without_gradient_; }
  void To(torch::Device device) override;
  // The module's own loss, or mean squared error, cross-entropy or Huber loss of its output.
  torch::Tensor Loss(const Batch& batch, std::optional<torch::ScalarType> autocast) override;
  [[noreturn]] void ExplainBackward(const Batch& batch, const std::exception& error) override;
  std::unique_ptr<ModelState> CopyState() const override;
  NamedTensors attributes() const override;
  void PutAttributes(const NamedTensors& attributes) override;
  // Only of batches with weights.
  torch::Tensor ExampleLosses() const override { return example_losses_; }
  // In eval mode.
  std::vector<MetricSum> Evaluate(const Batch& batch) override;
  absl::Status CheckCompilable(training::v1::PrecisionMode mode) const override;
  // A user's module may decide anything anew in each call.
  bool changes_buffers() const override { return true; }
  bool changes_parameters() const override { return changes_parameters_; }
  bool repeats_itself() const override { return false; }
  int64_t OperationsPerExample() const override { return operations_; }

 private:
  ScriptedModel(torch::jit::Module module, training::v1::TorchScriptSpec spec,
                std::vector<std::string> inputs, std::string data_path);

  // Brings what is not trained into the format of the parameters, as module.to(dtype) in Python.
  void FollowFormat(torch::ScalarType format);
  // Frozen parameters that forward changes.
  std::vector<torch::Tensor> Moving() const;
  torch::Device device() const { return parameters_.front().second.device(); }
  // Floating-point fields in the format of the parameters, but for those of a module that computes
  // its own loss which it can take as they are.
  std::vector<torch::IValue> Inputs(const Batch& batch, torch::ScalarType format,
                                    std::optional<torch::ScalarType> autocast);
  // Which inputs have to be cast for a forward and a backward pass: as few as can be, the first
  // ones first.
  std::vector<bool> FindCasts(const Batch& batch, torch::ScalarType format);
  // For a trial: those of the parameters, undefined where the loss does not depend on one.
  std::vector<torch::Tensor> Gradients(const torch::Tensor& loss) const;
  // The result of forward, checked against the loss.
  torch::Tensor Output(const Batch& batch, std::optional<torch::ScalarType> autocast);
  torch::Tensor LossOf(const Batch& batch, std::optional<torch::ScalarType> autocast);
  std::vector<MetricSum> FiguresOf(const Batch& batch);
  // Throws what `error` means for the user.
  [[noreturn]] void Explain(const Batch& batch, const std::exception& error);
  // The first example that the module cannot take, while it can with another value of one field, in
  // words; "" where it is not the data.
  std::string FindBadExample(const Batch& batch);
  bool Fails(const Batch& batch);
  std::string Given(const Batch& batch) const;
  void CheckOutput(const torch::Tensor& output, const Batch& batch) const;
  torch::Tensor Target(const Batch& batch) const;
  // For float32 output: no dimensions, or one for each element.
  torch::Tensor Compare(const torch::Tensor& output, const torch::Tensor& target, bool mean) const;
  // One for each example, [B].
  torch::Tensor LossOfEach(const torch::Tensor& output, const torch::Tensor& target) const;
  // Runs the module on the first examples, forward and backward: what does not fit is said before
  // the job runs.
  absl::Status Try(const Dataset& dataset, int64_t batch_size);
  absl::Status TryOn(const Batch& batch);

  torch::jit::Module module_;
  const training::v1::TorchScriptSpec spec_;
  const std::vector<std::string> inputs_;
  const std::string data_path_;  // For messages.
  NamedTensors first_attributes_;
  std::map<torch::ScalarType, std::vector<bool>> casts_;
  NamedTensors parameters_;
  std::vector<std::pair<std::string, FrozenParameter>> frozen_;
  std::vector<std::pair<std::string, std::string>> tied_;
  std::vector<std::string> without_gradient_;
  torch::Tensor example_losses_;
  int64_t operations_ = 0;
  bool changes_parameters_ = false;
};

}  // namespace genesis
