#include "config/precision/vector_instructions.h"

#if defined(__x86_64__)
#include <cpuid.h>

#include <cstdint>

namespace genesis {
namespace {

// Returns the register states that the operating system has enabled (XCR0); 0 if unreadable.
uint64_t EnabledRegisterState() {
  unsigned eax = 0, ebx = 0, ecx = 0, edx = 0;
  constexpr unsigned kOsXsave = 1U << 27;
  if (__get_cpuid(1, &eax, &ebx, &ecx, &edx) == 0 || (ecx & kOsXsave) == 0) return 0;
  unsigned low = 0, high = 0;
  __asm__ volatile("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
  return static_cast<uint64_t>(high) << 32 | low;
}

bool IsEnabled(uint64_t registers) { return (EnabledRegisterState() & registers) == registers; }

}  // namespace

bool HasAvx2() {
  __builtin_cpu_init();
  return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
}

bool HasAvx512() {
  __builtin_cpu_init();
  return __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
         __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512dq");
}

bool HasAvx512Bf16() {
  constexpr uint64_t kAvx512State = 0xE6;    // SSE, AVX, opmask and both halves of ZMM.
  constexpr unsigned kAvx512Bf16 = 1U << 5;  // Leaf 7, subleaf 1, EAX.
  unsigned eax = 0, ebx = 0, ecx = 0, edx = 0;
  if (__get_cpuid_count(7, 0, &eax, &ebx, &ecx, &edx) == 0) return false;
  const unsigned last_subleaf = eax;
  if (last_subleaf < 1 || __get_cpuid_count(7, 1, &eax, &ebx, &ecx, &edx) == 0) return false;
  return (eax & kAvx512Bf16) != 0 && IsEnabled(kAvx512State);
}

bool HasAmxBf16() {
  constexpr uint64_t kAmxState = 0x3ULL << 17;  // Tile configuration and tile data.
  constexpr unsigned kAmxBf16 = 1U << 22;       // Leaf 7, subleaf 0, EDX.
  unsigned eax = 0, ebx = 0, ecx = 0, edx = 0;
  if (__get_cpuid_count(7, 0, &eax, &ebx, &ecx, &edx) == 0) return false;
  return (edx & kAmxBf16) != 0 && IsEnabled(kAmxState);
}

bool IsIntels() {
  __builtin_cpu_init();
  return __builtin_cpu_is("intel");
}

}  // namespace genesis

#else

namespace genesis {

bool HasAvx2() { return false; }
bool HasAvx512() { return false; }
bool HasAvx512Bf16() { return false; }
bool HasAmxBf16() { return false; }
bool IsIntels() { return false; }

}  // namespace genesis

#endif
