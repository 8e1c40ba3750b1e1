#pragma once

#include <cstdint>
#include <optional>
#include <string>

namespace genesis {

// Fewest classes of an output layer that is worth replacing: logits of fewer are small.
inline constexpr int64_t kMinFusedClasses = 4096;

// Returns a graph of an exported file, as JSON, in which one operator of this process computes an
// output layer with its cross-entropy, and their gradients if the graph has them. It computes what
// the graph did, to the bit, or by TokenLossesAndGradients if that suits the batch. nullopt if the
// graph has no such layer:
//   mm or addmm, then reshapes and at most casts to float32, _log_softmax, nll_loss_forward,
//   and all of nll_loss_backward, _log_softmax_backward_data and the gradients of input, weight and
//   bias, or nothing of these;
// of kMinFusedClasses or more classes, with logits used for nothing else, and a gradient of the
// loss that does not depend on the loss. Losses with label smoothing, of probabilities and of
// pixels are other operators and stay as they are.
std::optional<std::string> WithLinearCrossEntropy(const std::string& graph);

}  // namespace genesis
