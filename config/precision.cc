#include "config/precision.h"

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/strip.h"

#if defined(__x86_64__)
#include <cpuid.h>
#endif

namespace genesis {
namespace {

using training::v1::DeviceInfo;
using training::v1::EffectivePrecision;
using training::v1::PrecisionMode;

constexpr int kFirstBf16Capability = 80;  // Ampere, the first to multiply BF16.
constexpr char kFp16OnCpu[] = "FP16 is emulated on a CPU (20 to 140 times slower than FP32)";

// A mode and why it was chosen, without the mode's name.
struct Choice {
  PrecisionMode mode;
  std::string reason;
};

Choice ChooseMixedFp16(bool named, CpuFallback fallback, const DeviceInfo& device) {
  if (device.cuda()) {
    return {training::v1::PRECISION_MODE_MIXED_FP16,
            named ? "asked for by the job" : "the default while reduced precision is enabled"};
  }
  if (fallback == CpuFallback::kFp32) {
    return {training::v1::PRECISION_MODE_FP32,
            absl::StrCat(kFp16OnCpu, " and precision.cpu_fallback is fp32")};
  }
  if (!device.cpu_native_bf16()) {
    return {training::v1::PRECISION_MODE_FP32,
            absl::StrCat(kFp16OnCpu,
                         " and this processor has no native BF16 (avx512_bf16 or "
                         "amx_bf16)")};
  }
  return {training::v1::PRECISION_MODE_MIXED_BF16,
          absl::StrCat(kFp16OnCpu, "; this processor multiplies BF16 natively")};
}

Choice ChooseMixedBf16(const DeviceInfo& device) {
  if (device.cuda() && device.compute_capability() < kFirstBf16Capability) {
    return {training::v1::PRECISION_MODE_FP32,
            absl::StrFormat("BF16 needs compute capability 8.0; %s has %d.%d", device.name(),
                            device.compute_capability() / 10, device.compute_capability() % 10)};
  }
  if (!device.cuda() && !device.cpu_native_bf16()) {
    return {training::v1::PRECISION_MODE_MIXED_BF16,
            "asked for by the job; warning: this processor has no native BF16 (avx512_bf16 or "
            "amx_bf16), so it is emulated and slower than FP32"};
  }
  return {training::v1::PRECISION_MODE_MIXED_BF16, "asked for by the job"};
}

Choice Choose(PrecisionMode requested, const PrecisionGate& gate, CpuFallback fallback,
              const DeviceInfo& device) {
  if (requested == training::v1::PRECISION_MODE_FP32) return {requested, "asked for by the job"};
  if (!gate.enabled) {
    return {training::v1::PRECISION_MODE_FP32, absl::StrCat("reduced precision is ", gate.reason)};
  }
  switch (requested) {
    case training::v1::PRECISION_MODE_UNSPECIFIED:
    case training::v1::PRECISION_MODE_MIXED_FP16:
      return ChooseMixedFp16(requested == training::v1::PRECISION_MODE_MIXED_FP16, fallback,
                             device);
    case training::v1::PRECISION_MODE_MIXED_BF16:
      return ChooseMixedBf16(device);
    default:
      return {training::v1::PRECISION_MODE_FP32,
              absl::StrCat(PrecisionName(requested), " is not trained by this version")};
  }
}

#if defined(__x86_64__)
// Register state that the operating system saves at a context switch; 0 when it cannot be read.
uint64_t EnabledRegisterState() {
  unsigned eax = 0, ebx = 0, ecx = 0, edx = 0;
  constexpr unsigned kOsXsave = 1U << 27;
  if (__get_cpuid(1, &eax, &ebx, &ecx, &edx) == 0 || (ecx & kOsXsave) == 0) return 0;
  unsigned low = 0, high = 0;
  __asm__ volatile("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
  return static_cast<uint64_t>(high) << 32 | low;
}
#endif

}  // namespace

EffectivePrecision ComputeEffectivePrecision(PrecisionMode requested, const PrecisionGate& gate,
                                             CpuFallback fallback, const DeviceInfo& device) {
  const Choice choice = Choose(requested, gate, fallback, device);
  EffectivePrecision effective;
  effective.set_mode(choice.mode);
  effective.set_requested(requested);
  effective.set_reason(absl::StrCat(PrecisionName(choice.mode), ": ", choice.reason));
  effective.set_device(device.name());
  return effective;
}

bool IsReducedPrecision(PrecisionMode mode) { return mode != training::v1::PRECISION_MODE_FP32; }

std::string PrecisionName(PrecisionMode mode) {
  // A number that a newer client sent has no name.
  if (!training::v1::PrecisionMode_IsValid(mode)) return absl::StrCat(static_cast<int>(mode));
  return std::string(absl::StripPrefix(training::v1::PrecisionMode_Name(mode), "PRECISION_MODE_"));
}

std::string PrecisionLabel(PrecisionMode mode) {
  const std::string name = PrecisionName(mode);
  if (absl::EndsWith(name, "BF16")) return "bf16";
  return absl::EndsWith(name, "FP16") ? "fp16" : "fp32";
}

bool CpuHasNativeBf16() {
#if defined(__x86_64__)
  constexpr uint64_t kAvx512State = 0xE6;       // SSE, AVX, opmask and both halves of ZMM.
  constexpr uint64_t kAmxState = 0x3ULL << 17;  // Tile configuration and tile data.
  constexpr unsigned kAvx512Bf16 = 1U << 5;     // Leaf 7, subleaf 1, EAX.
  constexpr unsigned kAmxBf16 = 1U << 22;       // Leaf 7, subleaf 0, EDX.
  const uint64_t state = EnabledRegisterState();
  unsigned eax = 0, ebx = 0, ecx = 0, edx = 0;
  if (__get_cpuid_count(7, 0, &eax, &ebx, &ecx, &edx) == 0) return false;
  if ((edx & kAmxBf16) != 0 && (state & kAmxState) == kAmxState) return true;
  const unsigned last_subleaf = eax;
  if (last_subleaf < 1 || __get_cpuid_count(7, 1, &eax, &ebx, &ecx, &edx) == 0) return false;
  return (eax & kAvx512Bf16) != 0 && (state & kAvx512State) == kAvx512State;
#else
  return false;
#endif
}

}  // namespace genesis
