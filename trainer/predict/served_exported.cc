#include "trainer/predict/served_exported.h"

#include <algorithm>
#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "trainer/checkpoint/element_scalar.h"
#include "trainer/models/exported/prediction_graph.h"
#include "trainer/predict/input_checks.h"

namespace genesis {
namespace {

using training::v1::JobSpec;

constexpr char kObservation[] = "observation";
constexpr char kAction[] = "action";
constexpr char kNext[] = "next_observation";
// Maximum number of values in a rollout of several calls together, to bound the memory.
constexpr int64_t kMaxRolloutNumbers = int64_t{64} << 20;

class ServedModule : public ServedModel {
 public:
  explicit ServedModule(std::unique_ptr<PredictionGraph> graph) : graph_(std::move(graph)) {
    for (const Field& field : graph_->inputs()) names_.push_back(field.name);
    const std::vector<std::string>& outputs = graph_->outputs();
    rolls_ = std::count(names_.begin(), names_.end(), kObservation) > 0 &&
             std::count(names_.begin(), names_.end(), kAction) > 0 &&
             std::count(outputs.begin(), outputs.end(), kNext) > 0;
  }

  absl::Status Load(const NamedTensors& weights) override { return graph_->Load(weights); }

  absl::Status Check(BatchTensors& inputs) const override {
    if (absl::Status named = CheckNames(inputs, names_); !named.ok()) return named;
    for (const Field& field : graph_->inputs()) {
      if (absl::Status fits = CheckField(field, inputs.at(field.name)); !fits.ok()) return fits;
    }
    return absl::OkStatus();
  }

  absl::StatusOr<BatchTensors> Predict(const BatchTensors& inputs) override {
    if (!IsRollout(inputs)) return RunOnce(inputs);
    BatchTensors step = inputs;
    std::map<std::string, std::vector<torch::Tensor>> outputs;
    int64_t numbers = 0;
    for (const torch::Tensor& action : inputs.at(kAction).unbind(1)) {
      step[kAction] = action;
      absl::StatusOr<BatchTensors> following = RunOnce(step);
      if (!following.ok()) return following;
      for (auto& [name, tensor] : *following) {
        numbers += tensor.numel();
        outputs[name].push_back(tensor);
      }
      if (numbers > kMaxRolloutNumbers) {
        return absl::InvalidArgumentError(
            "the outputs of the rollout are too large; send smaller batches or fewer steps");
      }
      step[kObservation] = outputs.at(kNext).back().to(inputs.at(kObservation).scalar_type());
    }
    BatchTensors stacked;
    for (const auto& [name, steps] : outputs) stacked.emplace(name, torch::stack(steps, 1));
    return stacked;
  }

 private:
  // Checks an input and converts it to the field's type. Rollout actions are [N, K, ...].
  absl::Status CheckField(const Field& field, torch::Tensor& tensor) const {
    const auto fits = [&field](const torch::IntArrayRef& shape) {
      return std::equal(shape.begin(), shape.end(), field.shape.begin(), field.shape.end());
    };
    const bool rollout = rolls_ && field.name == kAction && tensor.dim() > 1 &&
                         fits(tensor.sizes().slice(2)) && tensor.size(1) <= kMaxRolloutSteps;
    if (!fits(tensor.sizes().slice(1)) && !rollout) {
      const std::string rest =
          absl::StrCat(field.shape.empty() ? "" : ", ", absl::StrJoin(field.shape, ", "), "]");
      return ShapeFault(field.name, tensor,
                        absl::StrCat("[N", rest,
                                     rolls_ && field.name == kAction
                                         ? absl::StrCat(", or [N, K", rest, " with K from 1 to ",
                                                        kMaxRolloutSteps)
                                         : ""));
    }
    return ConvertTo(ToScalarType(field.type), field.name, tensor);
  }

  bool IsRollout(const BatchTensors& inputs) const {
    if (!rolls_) return false;
    for (const Field& field : graph_->inputs()) {
      if (field.name != kAction) continue;
      return inputs.at(kAction).dim() == static_cast<int64_t>(field.shape.size()) + 2;
    }
    return false;
  }

  absl::StatusOr<BatchTensors> RunOnce(const BatchTensors& inputs) {
    const int64_t rows = inputs.begin()->second.size(0);
    const int64_t size = graph_->batch_size().value_or(rows);
    std::map<std::string, std::vector<torch::Tensor>> parts;
    for (int64_t begin = 0; begin < rows; begin += size) {
      absl::StatusOr<NamedTensors> outputs = graph_->Run(Piece(inputs, begin, size));
      if (!outputs.ok()) return outputs.status();
      for (const auto& [name, tensor] : *outputs) parts[name].push_back(tensor);
    }
    BatchTensors joined;
    for (const auto& [name, list] : parts) {
      joined.emplace(
          name, list.size() == 1 && rows == size ? list[0] : torch::cat(list).slice(0, 0, rows));
    }
    return joined;
  }

  // Returns `size` rows of each input from `begin` on. Repeats the last row if there are fewer.
  static BatchTensors Piece(const BatchTensors& inputs, int64_t begin, int64_t size) {
    BatchTensors piece;
    for (const auto& [name, tensor] : inputs) {
      const int64_t count = std::min(size, tensor.size(0) - begin);
      torch::Tensor rows = tensor.slice(0, begin, begin + count);
      if (count < size) {
        std::vector<int64_t> repeated(static_cast<size_t>(rows.dim()), -1);
        repeated[0] = size - count;
        rows = torch::cat({rows, rows.slice(0, count - 1).expand(repeated)});
      }
      piece.emplace(name, rows.contiguous());
    }
    return piece;
  }

  const std::unique_ptr<PredictionGraph> graph_;
  std::vector<std::string> names_;
  bool rolls_ = false;  // The module takes an action and returns the next observation.
};

}  // namespace

absl::StatusOr<std::unique_ptr<ServedModel>> BuildServedModule(const JobSpec& spec,
                                                               const NamedTensors& /*weights*/) {
  absl::StatusOr<std::unique_ptr<PredictionGraph>> graph =
      PredictionGraph::Open(spec.model().exported().path());
  if (!graph.ok()) return graph.status();
  return std::make_unique<ServedModule>(*std::move(graph));
}

}  // namespace genesis
