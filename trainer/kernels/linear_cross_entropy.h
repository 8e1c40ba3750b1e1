#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <optional>

namespace genesis {

// An output layer with its loss: the cross-entropy of logits = input weight^T + bias. The logits of
// all tokens are never in memory together. For one chunk of tokens at a time, forward turns logits
// into losses and, in place, into their own gradients, and computes the layer's gradients, which
// backward only scales. Liger Kernel's FusedLinearCrossEntropy (Hsu et al., 2024) and
// torchtune's LinearCrossEntropyLoss do the same; see also Cut Cross-Entropy (Wijmans et al.,
// 2024).
struct LinearCrossEntropyArguments {
  at::Tensor input;      // [N, D], of the type in which logits are computed.
  at::Tensor weight;     // [V, D], of the same type.
  at::Tensor bias = {};  // [V], of the same type; undefined if the layer has no bias.
  at::Tensor target;     // [N], int64.
  // Same meaning as in at::cross_entropy_loss.
  at::Tensor class_weight = {};  // [V], float32; undefined if all classes count alike.
  int64_t ignore_index = -100;
  double label_smoothing = 0;
};

struct LinearCrossEntropyGradients {
  at::Tensor losses;  // [N], float32; 0 for targets that are ignored.
  // Gradients of the sum of all losses, each times its factor: float32, in the arguments' shapes,
  // summed over the chunks in float32. `bias` is undefined if the layer has no bias.
  at::Tensor input;
  at::Tensor weight;
  at::Tensor bias;
};

// Returns whether UseOwnKernels was called, the device is a CPU, and the logits [tokens, classes]
// exceed one chunk. For logits within a chunk callers use LibTorch's operators, which need no more
// memory and give the same bits as in Python.
bool SuitsLinearCrossEntropy(at::Device device, int64_t tokens, int64_t classes);

// Returns the number of tokens whose logits are in memory at a time.
int64_t TokensPerChunk(int64_t classes);

// Returns the loss of each token: float32 [N], 0 for targets that are ignored. On a CPU, throws
// IndexError, as torch does, if a target is not a class.
at::Tensor TokenLosses(const LinearCrossEntropyArguments& arguments);

// Returns losses and gradients. `factors` (float32 [N]) multiply the losses of the tokens. `chunk`
// is the number of tokens in a chunk.
LinearCrossEntropyGradients TokenLossesAndGradients(const LinearCrossEntropyArguments& arguments,
                                                    const at::Tensor& factors, int64_t chunk);

// Returns the weight of each token in a mean: float32 [N], the weight of the target's class, or 0
// if the target is ignored.
at::Tensor TokenWeights(const LinearCrossEntropyArguments& arguments);

struct LinearCrossEntropyLoss {
  at::Tensor loss;    // Sum of the losses times their factors: float32, no dimensions.
  at::Tensor losses;  // [N], float32, detached.
};

// Returns the loss as part of the autograd graph: backward computes the gradients of input, weight
// and bias, of any floating-point types, and can run once. The layer runs in `format`.
LinearCrossEntropyLoss LinearCrossEntropy(const LinearCrossEntropyArguments& arguments,
                                          const at::Tensor& factors, at::ScalarType format);

}  // namespace genesis
