#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "trainer/predict/served_model.h"

namespace genesis {

// Functions that check predictions for all kinds of models. They return INVALID_ARGUMENT.

// Checks that the inputs have exactly these names. Does not check their shapes.
absl::Status CheckNames(const BatchTensors& inputs, const std::vector<std::string>& names);
// Checks that outputs of `numbers` numbers in total fit into a response.
absl::Status CheckOutput(int64_t numbers);
// Converts an input to the type of the model. INVALID_ARGUMENT if a value is not finite in a
// floating-point type, or if an integer type or bool cannot represent it.
absl::Status ConvertTo(torch::ScalarType type, const std::string& name, torch::Tensor& tensor);
// Return the errors for an input whose shape, or one of whose values, is not accepted.
absl::Status ShapeFault(const std::string& name, const torch::Tensor& tensor,
                        const std::string& accepted);
absl::Status ValueFault(const std::string& name, double value, const std::string& accepted);
// Returns the first value of `tensor` where `bad`, of the same shape, is true; nullopt if none is.
std::optional<double> FirstWhere(const torch::Tensor& bad, const torch::Tensor& tensor);

}  // namespace genesis
