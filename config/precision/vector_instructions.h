#pragma once

namespace genesis {

// The instruction sets of this machine's processor, according to CPUID, if the operating system has
// enabled their registers (XCR0). All functions return false on architectures other than x86-64.

// Returns true for AVX2 with FMA. Only some emulated processors have AVX2 without FMA.
bool HasAvx2();
// Returns true if all parts of AVX-512 that oneDNN and LibTorch require are supported.
bool HasAvx512();
// Return true if products of BF16 vectors (AVX-512) or BF16 tiles (AMX) are supported.
bool HasAvx512Bf16();
bool HasAmxBf16();
// Returns true for an Intel processor.
bool IsIntels();

}  // namespace genesis
