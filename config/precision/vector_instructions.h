#pragma once

namespace genesis {

// The instructions of this machine's processor, as CPUID reports them and the operating system has
// enabled their registers (XCR0). All false where it is not x86-64.

// With FMA, which every processor with AVX2 has but for a few emulated ones.
bool HasAvx2();
// All of AVX-512 that oneDNN and LibTorch ask for before they use it.
bool HasAvx512();
// Products of BF16 vectors, and of BF16 tiles.
bool HasAvx512Bf16();
bool HasAmxBf16();
// Whether Intel made it.
bool IsIntels();

}  // namespace genesis
