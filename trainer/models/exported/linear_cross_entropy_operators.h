#pragma once

#include <string>

namespace genesis {

// Returns the operator of this process, by nativert's name, that computes an output layer with its
// cross-entropy, and defines it at the first call. Its arguments are those of aten::addmm (bias may
// be None) and aten::nll_loss_forward:
//   (Tensor input, Tensor weight, Tensor? bias, Tensor target, Tensor? class_weight,
//    int reduction, int ignore_index) -> (Tensor loss, Tensor total_weight)
// input [N, D], weight [D, V], loss and total_weight float32. If `differentiates`, the argument
// `Tensor grad_output`, the gradient of the loss, follows; the gradients of input [N, D], weight
// [V, D] and, if `has_bias`, bias [1, V], of the type of `input`, are further results.
//
// For batches that do not suit TokenLossesAndGradients, results are bitwise those of the operators
// that torch traces. Threads: any.
std::string LinearCrossEntropyOperator(bool differentiates, bool has_bias);

}  // namespace genesis
