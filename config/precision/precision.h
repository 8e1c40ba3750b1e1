#pragma once

#include <string>
#include <vector>

#include "config/precision/gate.h"
#include "genesis/training/v1/job.pb.h"
#include "genesis/training/v1/worker_service.pb.h"

namespace genesis {

// What FP16 modes become on a machine without CUDA (precision.cpu_fallback).
enum class CpuFallback {
  kBf16,     // MIXED_BF16 where the processor multiplies BF16 natively, else FP32.
  kFp32,     // FP32.
  kEmulate,  // What was asked for, emulated: 20 to 140 times slower than FP32. For rehearsals.
};

// What the daemon does when jobs in reduced precision fail too often (precision.failure_watch).
enum class FailureWatchAction { kOff, kAdvise, kEnforce };

// The precision that really runs, and why. A pure function of request, gate, policy and device:
//  * gate closed: FP32, whatever was asked.
//  * no mode named: MIXED_FP16 is what was asked.
//  * FP16 and MIXED_FP16 need CUDA with tensor cores (compute capability 7.0). Below that FP32.
//    Without CUDA they become MIXED_BF16 where the processor has native BF16 and the policy is
//    kBf16, else FP32; only kEmulate runs them there.
//  * BF16 and MIXED_BF16 named by the user run on any CPU; without native BF16 the reason warns
//  that
//    it is emulated and slower. On CUDA they need compute capability 8.0, else FP32.
//  * AUTO stays AUTO where more than FP32 can be measured (AutoCandidates), and is settled by the
//    worker; else FP32.
// `reason` starts with the mode's name; `refused` has one sentence for each mode that was asked for
// or tried before and did not run.
training::v1::EffectivePrecision ComputeEffectivePrecision(training::v1::PrecisionMode requested,
                                                           const PrecisionGate& gate,
                                                           CpuFallback fallback,
                                                           const training::v1::DeviceInfo& device);

// What AUTO measures besides FP32: the mixed modes that this device runs in hardware. Empty with
// the gate closed.
std::vector<training::v1::PrecisionMode> AutoCandidates(const PrecisionGate& gate,
                                                        CpuFallback fallback,
                                                        const training::v1::DeviceInfo& device);

// The modes that a job may change to while it runs: all that ComputeEffectivePrecision would run as
// they are, without MIXED_BF16 and BF16 where those are emulated and the job did not name them.
std::vector<training::v1::PrecisionMode> AllowedModes(const training::v1::PrecisionSpec& spec,
                                                      const PrecisionGate& gate,
                                                      CpuFallback fallback,
                                                      const training::v1::DeviceInfo& device);

// True for every mode but FP32.
bool IsReducedPrecision(training::v1::PrecisionMode mode);

// "FP32", "MIXED_BF16", ...
std::string PrecisionName(training::v1::PrecisionMode mode);

// Value of the metric label `mode`: "fp32", "fp16" or "bf16", mixed and pure alike.
std::string PrecisionLabel(training::v1::PrecisionMode mode);

// Whether gradients are scaled: the FP16 modes.
bool HasLossScale(training::v1::PrecisionMode mode);

// True when the processor of this machine multiplies BF16 natively: avx512_bf16, or amx_bf16, as
// reported by CPUID and enabled by the operating system (XCR0).
bool CpuHasNativeBf16();

// What matrix products on this machine's processor can use: "amx_bf16", "avx512_bf16", "avx512",
// "avx2" or "baseline".
std::string CpuIsa();

}  // namespace genesis
