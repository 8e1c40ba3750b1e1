#include "trainer/step/initial_weights.h"

#include <c10/core/ScalarTypeToTypeMeta.h>

#include <cmath>
#include <map>
#include <optional>
#include <set>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/strip.h"
#include "base/text/text.h"
#include "trainer/checkpoint/weights.h"
#include "trainer/formats/element_value.h"

namespace genesis {
namespace {

// Maximum number of tensors of a kind that a message names; the others are counted.
constexpr size_t kMaxTensorsNamed = 3;

std::string TypeAndShape(const at::Tensor& tensor) {
  return absl::StrCat(c10::getDtypeNames(tensor.scalar_type()).first, " [",
                      absl::StrJoin(tensor.sizes(), ", "), "]");
}

std::string Named(const std::string& name, const at::Tensor& tensor) {
  return absl::StrCat(OneLine(name, kMaxNameBytes), " ", TypeAndShape(tensor));
}

// Returns "2 tensors that the job's model lacks: a float32 [3], b float32 [3]"; "" for none.
std::string Listed(const std::vector<std::string>& tensors, const char* one, const char* several) {
  if (tensors.empty()) return "";
  const size_t shown = std::min(tensors.size(), kMaxTensorsNamed);
  return absl::StrCat(
      tensors.size(), " ", tensors.size() == 1 ? one : several, ": ",
      absl::StrJoin(tensors.begin(), tensors.begin() + static_cast<std::ptrdiff_t>(shown), ", "),
      tensors.size() > shown ? ", ..." : "");
}

// Returns whether the types fit: floating-point values are converted; other types must match.
bool HasFittingType(const at::Tensor& found, const at::Tensor& own) {
  return found.scalar_type() == own.scalar_type() ||
         (found.is_floating_point() && own.is_floating_point());
}

// Describes the first value that is not finite and its position; "" for none. `own` is the model's
// tensor before loading.
std::string NonFinite(const std::string& name, const at::Tensor& found, const at::Tensor& own) {
  if (!own.is_floating_point()) return "";
  const at::Tensor taken = found.to(own.scalar_type());
  const at::Tensor finite = at::isfinite(taken);
  if (finite.all().item<bool>()) return "";
  // Accept infinities that the model's own tensor also has, as in a mask.
  const at::Tensor bad = finite.logical_or(at::isinf(own).logical_and(own.eq(taken))).logical_not();
  if (!bad.any().item<bool>()) return "";
  const auto first = bad.flatten().to(at::kByte).argmax().item<int64_t>();
  const auto value = found.flatten()[first].item<double>();
  return absl::StrCat(
      OneLine(name, kMaxNameBytes), " is ", NumberText(value), " at ",
      PlaceText(found.sizes().vec(), first),
      std::isfinite(value)
          ? absl::StrCat(", more than ", c10::getDtypeNames(own.scalar_type()).first, " holds")
          : "");
}

// One tensor of a model, with its names in a state_dict(), the primary name first.
struct Slot {
  std::vector<std::string> names;
  at::Tensor tensor;
  bool needed = true;
};

std::vector<Slot> SlotsOf(const Model& model) {
  std::vector<Slot> slots;
  for (const auto& [name, tensor] : model.parameters()) {
    slots.push_back({.names = {name}, .tensor = tensor.detach()});
  }
  for (const auto& [name, tensor] : model.buffers()) {
    slots.push_back({.names = {name}, .tensor = tensor, .needed = !model.buffers_are_of_data()});
  }
  for (const auto& [name, other] : model.tied()) {
    for (Slot& slot : slots) {
      if (slot.names.front() == other) slot.names.push_back(name);
    }
  }
  return slots;
}

// A comparison of the weights of a file with those of a model.
class Comparison {
 public:
  Comparison(std::map<std::string, at::Tensor> saved, const std::vector<Slot>& slots)
      : saved_(std::move(saved)) {
    for (const Slot& slot : slots) Take(slot);
    for (const auto& [name, tensor] : saved_) {
      if (known_.contains(name)) continue;
      unknown_.push_back(Named(name, tensor));
      for (const char* const prefix : {"module.", "_orig_mod."}) {
        absl::string_view rest = name;
        if (absl::ConsumePrefix(&rest, prefix) && known_.contains(std::string(rest))) {
          prefix_ = prefix;
        }
      }
    }
  }

  // Pairs of a slot's tensor and the file's tensor, for the slots that the file has.
  const std::vector<std::pair<at::Tensor, at::Tensor>>& pairs() const { return pairs_; }

  // Returns all mismatches, or "".
  std::string Faults() const {
    std::vector<std::string> faults;
    for (std::string& listed : std::vector<std::string>{
             Listed(unknown_, "tensor that the job's model lacks",
                    "tensors that the job's model lacks"),
             Listed(missing_, "tensor of the job's model is missing",
                    "tensors of the job's model are missing"),
             Listed(different_, "tensor is of another shape or type",
                    "tensors are of another shape or type"),
             Listed(twice_, "tied tensor has two values", "tied tensors have two values"),
             Listed(non_finite_, "tensor is not finite", "tensors are not finite")}) {
      if (!listed.empty()) faults.push_back(std::move(listed));
    }
    if (faults.empty()) return "";
    return absl::StrCat(
        absl::StrJoin(faults, "; "),
        "; accepted: finite tensors with the names, shapes and types of the model's state_dict()",
        prefix_.empty() ? "" : absl::StrCat("; the names begin with ", prefix_, ": remove that"));
  }

 private:
  void Take(const Slot& slot) {
    known_.insert(slot.names.begin(), slot.names.end());
    const at::Tensor* first = nullptr;
    for (const std::string& name : slot.names) {
      const auto found = saved_.find(name);
      if (found == saved_.end()) continue;
      const at::Tensor& tensor = found->second;
      if (tensor.sizes() != slot.tensor.sizes() || !HasFittingType(tensor, slot.tensor)) {
        different_.push_back(absl::StrCat(Named(name, tensor), " for ", TypeAndShape(slot.tensor)));
        return;
      }
      if (first == nullptr) {
        first = &tensor;
        const std::string fault = NonFinite(name, tensor, slot.tensor);
        if (!fault.empty()) non_finite_.push_back(fault);
        pairs_.emplace_back(slot.tensor, tensor);
      } else if (!at::equal(*first, tensor.to(first->scalar_type()))) {
        twice_.push_back(absl::StrJoin(slot.names, " and "));
      }
    }
    if (first == nullptr && slot.needed) missing_.push_back(Named(slot.names[0], slot.tensor));
  }

  const std::map<std::string, at::Tensor> saved_;
  std::set<std::string> known_;
  std::vector<std::pair<at::Tensor, at::Tensor>> pairs_;
  std::vector<std::string> unknown_, missing_, different_, twice_, non_finite_;
  std::string prefix_;
};

}  // namespace

absl::Status LoadInitialWeights(const std::string& path, Model& model) {
  const absl::StatusOr<NamedTensors> weights = ReadWeights(path);
  if (!weights.ok()) return weights.status();
  const absl::Status put = PutWeights(*weights, model);
  if (put.ok()) return put;
  return absl::InvalidArgumentError(
      absl::StrCat("model.initial_weights ", path, ": ", put.message()));
}

absl::Status PutWeights(const NamedTensors& weights, Model& model) {
  const torch::NoGradGuard no_grad;
  const Comparison comparison({weights.begin(), weights.end()}, SlotsOf(model));
  if (const std::string faults = comparison.Faults(); !faults.empty()) {
    return absl::InvalidArgumentError(faults);
  }
  for (const auto& [own, found] : comparison.pairs()) own.copy_(found);
  return absl::OkStatus();
}

}  // namespace genesis
