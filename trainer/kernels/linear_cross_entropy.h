#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <optional>

namespace genesis {

// An output layer with its loss: the cross-entropy of logits = input weight^T + bias. The logits of
// all tokens are never in memory. For one chunk of tokens at a time, logits become losses and then
// their own gradient in place, and the gradients of the layer are computed at once, so that
// backward only scales them. Liger Kernel's FusedLinearCrossEntropy (Hsu et al., 2024) and
// torchtune's LinearCrossEntropyLoss do the same; see also Cut Cross-Entropy (Wijmans et al.,
// 2024).
struct LinearCrossEntropyArguments {
  at::Tensor input;      // [N, D], of the type in which logits are computed.
  at::Tensor weight;     // [V, D], of the same type.
  at::Tensor bias = {};  // [V], of the same type; undefined for a layer without.
  at::Tensor target;     // [N], int64.
  // Same meaning as in at::cross_entropy_loss.
  at::Tensor class_weight = {};  // [V], float32; undefined if all classes count alike.
  int64_t ignore_index = -100;
  double label_smoothing = 0;
};

struct LinearCrossEntropyGradients {
  at::Tensor losses;  // [N], float32; 0 for targets that are ignored.
  // Gradients of the sum of all losses, each times its factor: float32, of the arguments' shapes.
  // Weight's and bias' are sums in float32 over the chunks. Bias' is undefined without bias.
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

// Returns the loss of each token: float32 [N], 0 for targets that are ignored. A target that is not
// a class is an IndexError, as torch's.
at::Tensor TokenLosses(const LinearCrossEntropyArguments& arguments);

// Returns losses and gradients, for the factor of each token's loss: float32 [N]. `chunk` is the
// number of tokens of a chunk.
LinearCrossEntropyGradients TokenLossesAndGradients(const LinearCrossEntropyArguments& arguments,
                                                    const at::Tensor& factors, int64_t chunk);

// Returns the weight of each token in a mean: float32 [N], that of its target's class, 0 if it is
// ignored.
at::Tensor TokenWeights(const LinearCrossEntropyArguments& arguments);

struct LinearCrossEntropyLoss {
  at::Tensor loss;    // Sum of the losses times their factors: float32, no dimensions.
  at::Tensor losses;  // [N], float32, detached.
};

// Returns the loss for autograd, which gives input, weight and bias, of any floating-point types,
// their gradients. The layer runs in `format`. Backward can run once.
LinearCrossEntropyLoss LinearCrossEntropy(const LinearCrossEntropyArguments& arguments,
                                          const at::Tensor& factors, at::ScalarType format);

}  // namespace genesis
