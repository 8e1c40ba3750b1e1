#pragma once

namespace genesis {

// Of the processor, all of it that oneDNN and LibTorch ask for before they use it.
bool HasAvx512();

// MKL multiplies FP32 matrices by AVX2 on every processor that is not Intel's. Where such a one has
// AVX-512, oneDNN, which LibTorch holds too and multiplies BF16 with, makes the same products more
// than twice as fast (docs/performance.md). Only the processor decides, so that a job computes the
// same to the bit each time it runs on one.
bool OneDnnMultipliesFaster();

// From now on this process computes what follows by kernels of this folder, whoever calls the
// operator: built-in models, TorchScript, autograd, compiled steps. Activations, norms and the
// gradient of group norm where HasAvx512; matrix products and attention where also
// OneDnnMultipliesFaster. A shape, layout or type that a kernel does not suit stays with LibTorch's
// own. Call it at most once, before any thread computes.
void UseOwnKernels();

// Whether FP32 products are oneDNN's now.
bool MultipliesByOneDnn();

}  // namespace genesis
