#pragma once

#include "absl/status/statusor.h"
#include "base/environment.h"

namespace genesis {

// GENESIS_OWN_KERNELS: true unless it is "false". INVALID_ARGUMENT for anything but true and false.
absl::StatusOr<bool> OwnKernelsWanted(const Environment& environment);

// From now on this process computes what follows by kernels of this folder, whoever calls the
// operator: built-in models, TorchScript, autograd, compiled steps. The processor decides which:
// activations, norms and the gradient of group norm where HasAvx512, and there, unless it is
// Intel's, FP32 products and long attention; masks of dropout where HasAvx2, unless it is Intel's;
// depthwise convolutions of compiled steps where HasAvx2; BF16 products and convolutions in FP32
// where those are faster, short attention in BF16 always. A shape, layout or type that a
// kernel does not suit stays with LibTorch's own. Call it at most once, before any thread computes.
void UseOwnKernels();

bool UsesOwnKernels();

// Whether FP32 products are oneDNN's now.
bool MultipliesByOneDnn();

// Whether products of BF16 are made in FP32 now, and rounded once, as AMX and AVX-512 round theirs.
bool MultipliesBf16InFp32();

}  // namespace genesis
