#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "trainer/predict/served_model.h"

namespace genesis {

// Checks that all kinds of models make of the inputs of a prediction. INVALID_ARGUMENT.

// Checks that the inputs are those named, whatever their shapes.
absl::Status CheckNames(const BatchTensors& inputs, const std::vector<std::string>& names);
// Checks that outputs of so many numbers fit into a response.
absl::Status CheckOutput(int64_t numbers);
// Converts an input to the type of the model. INVALID_ARGUMENT if a number is not finite in it, or
// if it is of integers or bool and does not hold a value.
absl::Status ConvertTo(torch::ScalarType type, const std::string& name, torch::Tensor& tensor);
// Return the error for an input of another shape, or with another value.
absl::Status ShapeFault(const std::string& name, const torch::Tensor& tensor,
                        const std::string& accepted);
absl::Status ValueFault(const std::string& name, double value, const std::string& accepted);
// Returns the first value of `tensor` where `bad`, of the same shape, is true; nullopt if none is.
std::optional<double> FirstWhere(const torch::Tensor& bad, const torch::Tensor& tensor);

}  // namespace genesis
