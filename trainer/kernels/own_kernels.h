#pragma once

#include "absl/status/statusor.h"
#include "base/environment.h"

namespace genesis {

// Returns GENESIS_OWN_KERNELS, true by default. INVALID_ARGUMENT unless it is true or false.
absl::StatusOr<bool> OwnKernelsWanted(const Environment& environment);

// Makes this process use the kernels of this folder for all callers: built-in models, graphs,
// autograd, compiled steps. The processor determines which: activations, norms and the gradient of
// group norm if HasAvx512, and then, except on Intel, FP32 products and larger attention; dropout
// masks if HasAvx2, except on Intel; depthwise convolutions of compiled steps if HasAvx2; BF16
// products and convolutions in FP32 if that is faster, and tiny BF16 attention always. Unsuitable
// shapes, layouts and types are left to LibTorch. Call at most once, before any thread computes.
void UseOwnKernels();

bool UsesOwnKernels();

// Returns whether FP32 products use oneDNN now.
bool MultipliesByOneDnn();

// Returns whether BF16 products are now computed in FP32 and rounded once, which is also how AMX
// and AVX-512 round.
bool MultipliesBf16InFp32();

}  // namespace genesis
