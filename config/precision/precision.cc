#include "config/precision/precision.h"

#include <algorithm>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/strip.h"
#include "base/text/enum_names.h"
#include "config/precision/vector_instructions.h"

namespace genesis {
namespace {

using training::v1::DeviceInfo;
using training::v1::EffectivePrecision;
using training::v1::PrecisionMode;

constexpr int kFirstBf16Capability = 80;  // Ampere, the first with BF16 products.
constexpr char kFp16OnCpu[] = "FP16 is emulated on a CPU (20 to 140 times slower than FP32)";

constexpr int kFirstTensorCores = 70;  // Volta.

// A mode and the reason for it, without the mode's name.
struct Choice {
  PrecisionMode mode;
  std::string reason;
  // Why the requested mode does not run; empty if it does.
  std::string refused;
};

Choice Fp32Instead(const std::string& why) { return {training::v1::PRECISION_MODE_FP32, why, why}; }

std::string LacksCapability(const char* format, int needed, const DeviceInfo& device) {
  return absl::StrFormat("%s needs compute capability %d.%d; %s has %d.%d", format, needed / 10,
                         needed % 10, device.name(), device.compute_capability() / 10,
                         device.compute_capability() % 10);
}

Choice ChooseFp16(PrecisionMode mode, bool named, CpuFallback fallback, const DeviceInfo& device) {
  const std::string wanted =
      named ? "asked for by the job" : "the default while reduced precision is enabled";
  if (device.cuda()) {
    if (device.compute_capability() < kFirstTensorCores) {
      return Fp32Instead(LacksCapability("FP16 training", kFirstTensorCores, device));
    }
    return {mode, wanted, ""};
  }
  switch (fallback) {
    case CpuFallback::kEmulate:
      return {mode,
              absl::StrCat(wanted, "; warning: ", kFp16OnCpu,
                           ", as precision.cpu_fallback emulate asks"),
              ""};
    case CpuFallback::kFp32:
      return Fp32Instead(absl::StrCat(kFp16OnCpu, " and precision.cpu_fallback is fp32"));
    case CpuFallback::kBf16:
      break;
  }
  if (!device.cpu_native_bf16()) {
    return Fp32Instead(absl::StrCat(kFp16OnCpu,
                                    " and this processor has no native BF16 (avx512_bf16 or "
                                    "amx_bf16)"));
  }
  const std::string why = absl::StrCat(kFp16OnCpu, "; this processor multiplies BF16 natively");
  return {training::v1::PRECISION_MODE_MIXED_BF16, why, why};
}

Choice ChooseBf16(PrecisionMode mode, const DeviceInfo& device) {
  if (device.cuda() && device.compute_capability() < kFirstBf16Capability) {
    return Fp32Instead(LacksCapability("BF16", kFirstBf16Capability, device));
  }
  if (!device.cuda() && !device.cpu_native_bf16()) {
    return {mode,
            "asked for by the job; warning: this processor has no native BF16 (avx512_bf16 or "
            "amx_bf16), so it is emulated and slower than FP32",
            ""};
  }
  return {mode, "asked for by the job", ""};
}

Choice ChooseAuto(const PrecisionGate& gate, CpuFallback fallback, const DeviceInfo& device) {
  if (!AutoCandidates(gate, fallback, device).empty()) {
    return {training::v1::PRECISION_MODE_AUTO, "the worker measures and chooses", ""};
  }
  return Fp32Instead(absl::StrCat("nothing to choose from: ", device.name(),
                                  " multiplies neither FP16 nor BF16 in hardware"));
}

Choice Choose(PrecisionMode requested, const PrecisionGate& gate, CpuFallback fallback,
              const DeviceInfo& device) {
  if (requested == training::v1::PRECISION_MODE_FP32) {
    return {requested, "asked for by the job", ""};
  }
  if (!gate.enabled) return Fp32Instead(absl::StrCat("reduced precision is ", gate.reason));
  if (!device.reduced_precision_disabled().empty()) {
    return Fp32Instead(absl::StrCat("reduced precision is ", device.reduced_precision_disabled()));
  }
  switch (requested) {
    case training::v1::PRECISION_MODE_UNSPECIFIED:
      return ChooseFp16(training::v1::PRECISION_MODE_MIXED_FP16, /*named=*/false, fallback, device);
    case training::v1::PRECISION_MODE_FP16:
    case training::v1::PRECISION_MODE_MIXED_FP16:
      return ChooseFp16(requested, /*named=*/true, fallback, device);
    case training::v1::PRECISION_MODE_BF16:
    case training::v1::PRECISION_MODE_MIXED_BF16:
      return ChooseBf16(requested, device);
    case training::v1::PRECISION_MODE_AUTO:
      return ChooseAuto(gate, fallback, device);
    default:
      return Fp32Instead(absl::StrCat("mode ", ShortEnumName(requested), " is not known here"));
  }
}

}  // namespace

EffectivePrecision ComputeEffectivePrecision(PrecisionMode requested, const PrecisionGate& gate,
                                             CpuFallback fallback, const DeviceInfo& device) {
  const Choice choice = Choose(requested, gate, fallback, device);
  EffectivePrecision effective;
  effective.set_mode(choice.mode);
  effective.set_requested(requested);
  effective.set_reason(absl::StrCat(ShortEnumName(choice.mode), ": ", choice.reason));
  effective.set_device(device.name());
  if (!choice.refused.empty()) {
    const PrecisionMode wanted = requested == training::v1::PRECISION_MODE_UNSPECIFIED
                                     ? training::v1::PRECISION_MODE_MIXED_FP16
                                     : requested;
    effective.add_refused(absl::StrCat(ShortEnumName(wanted), ": ", choice.refused));
  }
  return effective;
}

std::vector<PrecisionMode> AutoCandidates(const PrecisionGate& gate, CpuFallback fallback,
                                          const DeviceInfo& device) {
  std::vector<PrecisionMode> modes;
  if (!gate.enabled || !device.reduced_precision_disabled().empty()) return modes;
  const bool native_bf16 = device.cuda() ? device.compute_capability() >= kFirstBf16Capability
                                         : device.cpu_native_bf16();
  if (native_bf16) modes.push_back(training::v1::PRECISION_MODE_MIXED_BF16);
  const bool fp16 = device.cuda() ? device.compute_capability() >= kFirstTensorCores
                                  : fallback == CpuFallback::kEmulate;
  if (fp16) modes.push_back(training::v1::PRECISION_MODE_MIXED_FP16);
  return modes;
}

std::vector<PrecisionMode> AllowedModes(const training::v1::PrecisionSpec& spec,
                                        const PrecisionGate& gate, CpuFallback fallback,
                                        const DeviceInfo& device) {
  if (spec.mode() == training::v1::PRECISION_MODE_AUTO) {
    std::vector<PrecisionMode> modes = AutoCandidates(gate, fallback, device);
    modes.push_back(training::v1::PRECISION_MODE_FP32);
    return modes;
  }
  const auto named = [&spec](PrecisionMode mode) {
    return spec.mode() == mode || std::find(spec.fallbacks().begin(), spec.fallbacks().end(),
                                            mode) != spec.fallbacks().end();
  };
  std::vector<PrecisionMode> modes;
  for (const PrecisionMode mode :
       {training::v1::PRECISION_MODE_FP32, training::v1::PRECISION_MODE_FP16,
        training::v1::PRECISION_MODE_BF16, training::v1::PRECISION_MODE_MIXED_FP16,
        training::v1::PRECISION_MODE_MIXED_BF16}) {
    const bool emulated = !device.cuda() && PrecisionLabel(mode) == "bf16" &&
                          !device.cpu_native_bf16() && !named(mode);
    const bool runs =
        ComputeEffectivePrecision(mode, gate, fallback, device).mode() == mode && !emulated;
    if (runs) modes.push_back(mode);
  }
  return modes;
}

std::string CpuIsa() {
  // Processors with AMX have AVX-512 for BF16 too.
  if (HasAmxBf16()) return "amx_bf16";
  if (HasAvx512Bf16()) return "avx512_bf16";
#if defined(__x86_64__)
  __builtin_cpu_init();
  if (__builtin_cpu_supports("avx512f")) return "avx512";
  if (__builtin_cpu_supports("avx2")) return "avx2";
#endif
  return "baseline";
}

bool CpuHasNativeBf16() { return HasAvx512Bf16() || HasAmxBf16(); }

}  // namespace genesis
