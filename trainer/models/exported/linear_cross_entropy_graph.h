#pragma once

#include <cstdint>
#include <optional>
#include <string>

namespace genesis {

// Fewest classes of an output layer that is worth replacing: logits of fewer are small.
inline constexpr int64_t kMinFusedClasses = 4096;

// Returns a graph of an exported file, as JSON, in which one operator of this process computes an
// output layer with its cross-entropy, and their gradients if the graph has them. The operator uses
// TokenLossesAndGradients if that suits the batch; otherwise its results are bitwise those of the
// original graph. nullopt if the graph has no such layer:
//   mm or addmm, then reshapes and at most casts to float32, _log_softmax, nll_loss_forward,
//   and all of nll_loss_backward, _log_softmax_backward_data and the gradients of input, weight and
//   bias, or none of these;
// with at least kMinFusedClasses classes, logits that no other node uses, and a gradient of the
// loss that does not depend on the loss. Losses with label smoothing, of probabilities and of
// pixels consist of other operators and stay as they are.
std::optional<std::string> WithLinearCrossEntropy(const std::string& graph);

}  // namespace genesis
