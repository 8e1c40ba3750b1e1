#pragma once

#include <torch/torch.h>

#include <cstdint>
#include <exception>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "genesis/training/v1/job.pb.h"
#include "genesis/training/v1/precision.pb.h"
#include "trainer/data/dataset.h"

namespace genesis {

// In an order that means something: that of the module's state_dict().
using NamedTensors = std::vector<std::pair<std::string, torch::Tensor>>;

// Examples on the device, one tensor per field of the dataset with the batch as first dimension.
struct Batch {
  std::map<std::string, torch::Tensor> fields;
  std::vector<int64_t> examples;  // Their numbers in the dataset.

  // Requires that the dataset has it.
  const torch::Tensor& at(const std::string& field) const { return fields.at(field); }
  int64_t size() const { return static_cast<int64_t>(examples.size()); }
};

// A copy of what a model keeps between batches besides what is trained: buffers, and the attributes
// of a user's module.
//
// Owner: the caller; the model outlives it. Threads: one. Failure: exceptions of LibTorch.
class ModelState {
 public:
  virtual ~ModelState() = default;
  // Makes the model's state this one again.
  virtual void PutBack() const = 0;
  // Does that where `condition` (float32, no dimensions, on the model's device) is not 0, and does
  // not wait for a GPU. On a GPU the numbers and lists of a TorchScript module stay as they are.
  virtual void PutBackWhere(const torch::Tensor& condition) const = 0;
};

// A figure of an evaluation: its sum over the examples of a batch, so that batches add up. Several
// of one name are the terms of one figure.
struct MetricSum {
  std::string name;
  torch::Tensor sum;  // float64, no dimensions, on the device.
  // The divisor of the sum, likewise; undefined for the number of examples.
  torch::Tensor count = {};
};

// A model: parameters, and a loss of a batch. A kind of model is a class that implements this, a
// row of ModelKinds() and a row of BuildModel.
//
// Precision is not the model's business, with two exceptions. It casts floating-point inputs of its
// first layer to InputType(), because pure FP16 and BF16 convert the parameters in place; and it
// converts what comes out of the last layer to float32 before it computes losses. Normalisation
// statistics are float32 buffers and are applied in float32. Autocast is switched on around
// Predict by Loss and nowhere else.
//
// Owner: the run. Threads: one at a time. Failure: exceptions of LibTorch.
class Model {
 public:
  virtual ~Model() = default;

  // Share memory with the model. Names are those of a Python twin's state_dict(). Tied parameters
  // appear once in parameters().
  virtual NamedTensors parameters() const = 0;
  virtual NamedTensors buffers() const = 0;
  // Whether buffers() are made of the dataset, as the statistics of normalisations are, and not
  // part of what somebody else saved.
  virtual bool buffers_are_of_data() const { return true; }
  // Names that a Python state_dict() has besides, each with the tensor that it shares, e.g.
  // lm_head.weight and token_embedding.weight.
  virtual std::vector<std::pair<std::string, std::string>> tied() const { return {}; }
  // Names of parameters that the loss did not depend on when the model was tried.
  virtual std::vector<std::string> without_gradient() const { return {}; }
  // Version numbers of a user's module and its parts, by their names, which load_state_dict of
  // Python asks for.
  virtual std::vector<std::pair<std::string, int64_t>> versions() const { return {}; }
  virtual void To(torch::Device device) = 0;

  // Adds the random numbers that Loss takes to the batch, as fields beside those of the dataset:
  // once for each batch and before Loss. Drawn from torch's CPU generator, so that a run is the
  // same on every device; apart from the step, so that a step can be compiled, or recorded and
  // repeated.
  virtual void Draw(Batch&) const {}
  // The size of those fields, for one example.
  virtual std::vector<Field> drawn() const { return {}; }

  // Mean loss over the batch: float32, no dimensions. Layers run in `autocast` (see AutocastGuard);
  // the loss itself is computed in float32 outside of it. With a field "weight" each example's loss
  // is multiplied by its weight. Requires Draw(batch).
  virtual torch::Tensor Loss(const Batch& batch, std::optional<torch::ScalarType> autocast) = 0;
  // Whether it can be trained in a precision; in FP32 and AUTO each can.
  virtual bool supports(training::v1::PrecisionMode) const { return true; }
  // Whether loss and gradients come out of one graph, without autograd.
  virtual bool has_joint_graph() const { return false; }
  // The mean loss of the batch, detached, and adds to the gradients of the parameters those of that
  // loss times `scale` (float32, no dimensions). Requires has_joint_graph() and Draw(batch).
  virtual torch::Tensor AddLossAndGradients(const Batch&, std::optional<torch::ScalarType>,
                                            const torch::Tensor&) {
    return {};
  }
  // Inside a handler of what a backward pass of Loss threw: throws it again, in the words of who
  // wrote the model where that was a user.
  [[noreturn]] virtual void ExplainBackward(const Batch&, const std::exception&) { throw; }

  // All that Loss and Evaluate change in the model; null where they change nothing.
  virtual std::unique_ptr<ModelState> CopyState() const { return nullptr; }
  // While what is returned lives, Loss and Evaluate may be called for a look: at its end all that
  // they change in the model is as before. Null where they change nothing.
  std::shared_ptr<const void> KeepState() const;
  // Attributes that the model has changed since it was built, besides parameters and buffers; of no
  // interest to Python's load_state_dict, and needed to go on as if nothing had happened. Copies on
  // the CPU: a checkpoint is written while training goes on.
  virtual NamedTensors attributes() const { return {}; }
  // Sets these as given, and all others as they were when the model was built.
  virtual void PutAttributes(const NamedTensors&) {}

  // Loss of each example of the last call of Loss: float32 [B], detached; for priorities. Undefined
  // where a model has none.
  virtual torch::Tensor ExampleLosses() const { return {}; }

  // Figures of the model's kind on held-out examples, "loss" first, without gradients and in the
  // format of the parameters. Deterministic: draws from no shared generator.
  virtual std::vector<MetricSum> Evaluate(const Batch& batch) = 0;

  // Adds metrics that follow from the means over all held-out examples.
  virtual void AddDerivedMetrics(training::v1::Evaluation&) const {}

  // Why a step compiled from the model's source would be another step in `mode` than Loss makes; OK
  // where it would not.
  virtual absl::Status CheckCompilable(training::v1::PrecisionMode) const {
    return absl::OkStatus();
  }

  // Whether Loss and Evaluate take batches that are smaller than training.batch_size.
  virtual bool takes_short_batches() const { return true; }
  // Whether Loss changes buffers by the examples that it is given, as batch norm does.
  virtual bool changes_buffers() const { return false; }
  // Whether Loss changes trained parameters, so that ranks need a copy each.
  virtual bool changes_parameters() const { return false; }
  // Whether Loss gives a device the same operations for all batches of the same shapes.
  virtual bool repeats_itself() const { return true; }

  // Floating-point operations of one example, forward and backward, about.
  virtual int64_t OperationsPerExample() const = 0;

  // The number format of the parameters: float32 but in pure FP16 and BF16.
  torch::ScalarType InputType() const { return parameters().front().second.scalar_type(); }
};

// Builds the model of `spec` on the CPU, with weights drawn after torch.manual_seed(training.seed)
// in the order of a Python twin, and with the statistics of `dataset` as buffers. `spec` has every
// default filled in. INVALID_ARGUMENT when the dataset lacks a field or has one of another shape
// (naming both places), or when a scripted file cannot be used.
absl::StatusOr<std::unique_ptr<Model>> BuildModel(const training::v1::JobSpec& spec,
                                                  const Dataset& dataset);

}  // namespace genesis
