#pragma once

#include <string>

#include "config/gate.h"
#include "genesis/training/v1/job.pb.h"
#include "genesis/training/v1/worker_service.pb.h"

namespace genesis {

// What MIXED_FP16 and FP16 become on a machine without CUDA whose processor multiplies BF16
// natively (precision.cpu_fallback).
enum class CpuFallback { kBf16, kFp32 };

// The precision that really runs, and why. A pure function of request, gate, policy and device:
//  * gate closed: FP32, whatever was asked.
//  * no mode named: MIXED_FP16 is what was asked.
//  * MIXED_FP16 without CUDA: MIXED_BF16 where the processor has native BF16 and the policy is
//  kBf16,
//    else FP32. FP16 on a CPU is emulated (20 to 140 times slower than FP32) and never run.
//  * MIXED_BF16 named by the user runs on any CPU; without native BF16 the reason warns that it is
//    emulated and slower. On CUDA it needs compute capability 8.0, else FP32.
//  * modes this build does not train yet (FP16, BF16, AUTO) are refused by ValidateJobSpec.
// `reason` starts with the mode's name.
training::v1::EffectivePrecision ComputeEffectivePrecision(training::v1::PrecisionMode requested,
                                                           const PrecisionGate& gate,
                                                           CpuFallback fallback,
                                                           const training::v1::DeviceInfo& device);

// True for every mode but FP32.
bool IsReducedPrecision(training::v1::PrecisionMode mode);

// "FP32", "MIXED_BF16", ...
std::string PrecisionName(training::v1::PrecisionMode mode);

// Value of the metric label `mode`: "fp32", "fp16" or "bf16", mixed and pure alike.
std::string PrecisionLabel(training::v1::PrecisionMode mode);

// True when the processor of this machine multiplies BF16 natively: avx512_bf16, or amx_bf16, as
// reported by CPUID and enabled by the operating system (XCR0).
bool CpuHasNativeBf16();

}  // namespace genesis
