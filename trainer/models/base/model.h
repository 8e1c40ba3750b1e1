#pragma once

#include <torch/torch.h>

#include <cstdint>
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

// Tensors with their names, in the order of the module's state_dict().
using NamedTensors = std::vector<std::pair<std::string, torch::Tensor>>;

// Examples on the device: one tensor per field of the dataset, with the batch as first dimension.
struct Batch {
  std::map<std::string, torch::Tensor> fields;
  std::vector<int64_t> examples;  // Indices in the dataset.

  // Requires that the batch has the field.
  const torch::Tensor& at(const std::string& field) const { return fields.at(field); }
  int64_t size() const { return static_cast<int64_t>(examples.size()); }
};

// A copy of the buffers of a model and of other state that batches change, without parameters.
//
// Owner: the caller; the model outlives it. Threads: one. Failure: exceptions of LibTorch.
class ModelState {
 public:
  virtual ~ModelState() = default;
  // Restores this state of the model.
  virtual void PutBack() const = 0;
  // Restores it if `condition` (float32, no dimensions, on the model's device) is not 0, without
  // waiting for a GPU.
  virtual void PutBackWhere(const torch::Tensor& condition) const = 0;
};

// A metric of an evaluation, as a sum over the examples of a batch, so that batches add up. Several
// sums with one name are the terms of one metric.
struct MetricSum {
  std::string name;
  torch::Tensor sum;  // float64, no dimensions, on the device.
  // The divisor of the sum, of the same type; undefined for the number of examples.
  torch::Tensor count = {};
  // If defined, the divisor over several batches is the sum of `count` and `added` plus
  // `added_once`, but at least the sum of `least` plus `least_once`. `added_once` and `least_once`
  // are equal in all batches and not summed. All have the type of `sum`.
  torch::Tensor added = {};
  torch::Tensor added_once = {};
  torch::Tensor least = {};
  torch::Tensor least_once = {};
};

// A model: parameters and a loss of a batch. A kind of model is a class that implements this
// interface, a row of ModelKinds() and a row of BuildModel.
//
// A model is independent of precision, with two exceptions. It casts floating-point inputs of its
// first layer to InputType(), because pure FP16 and BF16 convert the parameters in place. It
// converts the output of the last layer to float32 before it computes losses. Normalisation
// statistics are float32 buffers and are applied in float32. Only Loss enables autocast, around
// Predict.
//
// Owner: the run. Threads: one at a time. Failure: exceptions of LibTorch.
class Model {
 public:
  virtual ~Model() = default;

  // Parameters and buffers share memory with the model, with the names of a twin's state_dict().
  // Tied parameters appear once in parameters().
  virtual NamedTensors parameters() const = 0;
  virtual NamedTensors buffers() const = 0;
  // Returns whether buffers() are computed from the dataset, such as normalisation statistics,
  // instead of loaded from a user's file.
  virtual bool buffers_are_of_data() const { return true; }
  // Additional names in a Python state_dict(), each with the tensor that it shares, e.g.
  // lm_head.weight and token_embedding.weight.
  virtual std::vector<std::pair<std::string, std::string>> tied() const { return {}; }
  // Names of parameters on which the loss did not depend in a trial before the job.
  virtual std::vector<std::string> without_gradient() const { return {}; }
  // Version numbers of a user's module and its parts, by name, for Python's load_state_dict.
  virtual std::vector<std::pair<std::string, int64_t>> versions() const { return {}; }
  virtual void To(torch::Device device) = 0;

  // Adds the random numbers that Loss needs to the batch, as additional fields: once per batch and
  // before Loss. Drawn from torch's CPU generator, so that a run is the same on every device, and
  // outside of the step, so that a step can be compiled, or captured and replayed.
  virtual void Draw(Batch&) const {}
  // Returns the fields that Draw adds, with their shape for one example.
  virtual std::vector<Field> drawn() const { return {}; }

  // Returns the mean loss over the batch: float32, no dimensions. Layers run in `autocast` (see
  // AutocastGuard); the loss itself is computed in float32 outside of it. A field "weight"
  // multiplies each example's loss. Requires Draw(batch).
  virtual torch::Tensor Loss(const Batch& batch, std::optional<torch::ScalarType> autocast) = 0;
  // Returns whether the model supports a precision. Every model supports FP32 and AUTO.
  virtual bool supports(training::v1::PrecisionMode) const { return true; }
  // Returns whether one graph computes loss and gradients, without autograd.
  virtual bool has_joint_graph() const { return false; }
  // Returns the detached mean loss of the batch, and adds the gradients of that loss times `scale`
  // (float32, no dimensions) to those of the parameters. Requires has_joint_graph() and
  // Draw(batch).
  virtual torch::Tensor AddLossAndGradients(const Batch&, std::optional<torch::ScalarType>,
                                            const torch::Tensor&) {
    return {};
  }

  // Returns a copy of the state that Loss and Evaluate change in the model; null if they change
  // nothing.
  virtual std::unique_ptr<ModelState> CopyState() const { return nullptr; }
  // Returns an object whose destructor restores all that Loss and Evaluate have changed in the
  // model since this call. Null if they change nothing.
  std::shared_ptr<const void> KeepState() const;
  // Returns attributes other than parameters and buffers that the model may have changed since it
  // was built. Python's load_state_dict ignores them, but a resumed run needs them. Copies them to
  // the CPU, because a checkpoint is written while training continues.
  virtual NamedTensors attributes() const { return {}; }
  // Sets these attributes, and resets all others to their values when the model was built.
  virtual void PutAttributes(const NamedTensors&) {}

  // Returns the losses of the examples in the last call of Loss: float32 [B], detached; they become
  // priorities. Undefined if the model does not provide them.
  virtual torch::Tensor ExampleLosses() const { return {}; }

  // Returns metrics of the model's kind on held-out examples, "loss" first, without gradients and
  // in the format of the parameters. Deterministic: draws from no shared generator.
  virtual std::vector<MetricSum> Evaluate(const Batch& batch) = 0;

  // Adds metrics derived from the means over all held-out examples.
  virtual void AddDerivedMetrics(training::v1::Evaluation&) const {}

  // Returns whether Loss and Evaluate accept batches smaller than training.batch_size.
  virtual bool takes_short_batches() const { return true; }
  // Returns the names of the buffers that Loss changes depending on the examples, as batch norm
  // does, and of state outside of state_dict() that it changes in this way.
  virtual std::vector<std::string> changed_buffers() const { return {}; }

  // Returns the approximate floating-point operations of one example, forward and backward.
  virtual int64_t OperationsPerExample() const = 0;

  // Returns the number format of the parameters: float32 except in pure FP16 and BF16.
  torch::ScalarType InputType() const { return parameters().front().second.scalar_type(); }
};

}  // namespace genesis
