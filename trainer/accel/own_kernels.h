#pragma once

#include "absl/status/statusor.h"
#include "base/environment.h"

namespace genesis {

// Whether the processor has all of AVX-512 that oneDNN and LibTorch ask for before they use it.
bool HasAvx512();

// GENESIS_OWN_KERNELS: true unless it is "false". INVALID_ARGUMENT for anything but true and false.
absl::StatusOr<bool> OwnKernelsWanted(const Environment& environment);

// From now on this process computes what follows by kernels of this folder, whoever calls the
// operator: built-in models, TorchScript, autograd, compiled steps. Activations, norms and the
// gradient of group norm where HasAvx512, and there, unless the processor is Intel's, also matrix
// products and attention. A shape, layout or type that a kernel does not suit stays with LibTorch's
// own. Call it at most once, before any thread computes.
void UseOwnKernels();

// Whether FP32 products are oneDNN's now.
bool MultipliesByOneDnn();

}  // namespace genesis
