#include "trainer/predict/input_checks.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/text/field_error.h"
#include "trainer/checkpoint/element_scalar.h"
#include "trainer/models/base/dataset_fields.h"

namespace genesis {

absl::Status CheckNames(const BatchTensors& inputs, const std::vector<std::string>& names) {
  const auto fault = [&names](const std::string& what) {
    return absl::InvalidArgumentError(
        absl::StrCat("inputs ", what, "; accepted: ", absl::StrJoin(names, " and ")));
  };
  for (const std::string& name : names) {
    if (!inputs.contains(name)) return fault(absl::StrCat("lack ", name));
  }
  for (const auto& [name, tensor] : inputs) {
    if (std::find(names.begin(), names.end(), name) == names.end()) {
      return fault(absl::StrCat("have ", QuoteValue(name)));
    }
  }
  return absl::OkStatus();
}

absl::Status ConvertTo(torch::ScalarType type, const std::string& name, torch::Tensor& tensor) {
  const torch::Tensor converted = tensor.to(type);
  const bool floats = converted.is_floating_point();
  const torch::Tensor bad =
      floats ? converted.isfinite().logical_not() : converted.to(tensor.scalar_type()).ne(tensor);
  if (const auto value = FirstWhere(bad, tensor)) {
    const std::optional<ElementType> element = ToElementType(type);
    return ValueFault(name, *value,
                      absl::StrCat(floats ? "finite values of " : "values of ",
                                   element.has_value() ? ElementTypeName(*element) : "the model"));
  }
  tensor = converted;
  return absl::OkStatus();
}

absl::Status ShapeFault(const std::string& name, const torch::Tensor& tensor,
                        const std::string& accepted) {
  return absl::InvalidArgumentError(absl::StrCat(
      "inputs.", name, " is ", SizesText(tensor.sizes().vec()), "; accepted: ", accepted));
}

absl::Status CheckOutput(int64_t numbers) {
  const int64_t bytes = numbers * static_cast<int64_t>(sizeof(float));
  if (bytes <= kMaxOutputBytes) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat("the outputs would have ", bytes,
                                                 " bytes; accepted: at most ", kMaxOutputBytes,
                                                 "; send smaller batches"));
}

absl::Status ValueFault(const std::string& name, double value, const std::string& accepted) {
  return absl::InvalidArgumentError(
      absl::StrCat("inputs.", name, " has ", FormatNumber(value), "; accepted: ", accepted));
}

std::optional<double> FirstWhere(const torch::Tensor& bad, const torch::Tensor& tensor) {
  if (!bad.any().item<bool>()) return std::nullopt;
  const auto first = bad.flatten().to(torch::kByte).argmax().item<int64_t>();
  return tensor.flatten()[first].item<double>();
}

}  // namespace genesis
