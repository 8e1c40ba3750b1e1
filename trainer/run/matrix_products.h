#pragma once

#include <cstdint>

namespace genesis {

// Side of the smallest square matrices that oneDNN multiplies. A product of fewer multiplications
// MKL has made by the time that oneDNN has found how to, some 10 microseconds.
inline constexpr int64_t kLeastOneDnnSide = 128;

// MKL multiplies FP32 matrices by AVX2 on every processor that is not Intel's. Where such a one has
// AVX-512, oneDNN, which LibTorch holds too and multiplies BF16 with, makes the same products more
// than twice as fast (docs/performance.md). Only the processor decides, so that a job computes the
// same to the bit each time it runs on one.
bool OneDnnMultipliesFaster();

// From now on aten::mm and aten::addmm of this process multiply FP32 matrices on the CPU by oneDNN,
// whoever calls them: built-in models, TorchScript, autograd, compiled steps; and the gradient of
// attention is made by it in FP32 and BF16 (attention_gradient.h). What is too small for it, and
// all other kinds, stay with LibTorch's own. Does nothing without AVX-512. Call it at most once,
// before any thread multiplies.
void MultiplyByOneDnn();

// Whether they do.
bool MultipliesByOneDnn();

}  // namespace genesis
