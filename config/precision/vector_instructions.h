#pragma once

namespace genesis {

// The instructions of this machine's processor, as reported by CPUID, with registers enabled by the
// operating system (XCR0). All false on other architectures than x86-64.

// Includes FMA, which every processor with AVX2 has, except a few emulated ones.
bool HasAvx2();
// Returns true if all parts of AVX-512 that oneDNN and LibTorch require are there.
bool HasAvx512();
// Return true if products of BF16 vectors, or of BF16 tiles, are supported.
bool HasAvx512Bf16();
bool HasAmxBf16();
// Returns true for a processor of Intel.
bool IsIntels();

}  // namespace genesis
