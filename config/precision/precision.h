#pragma once

#include <string>
#include <vector>

#include "config/precision/gate.h"
#include "config/precision/mode.h"
#include "genesis/training/v1/job.pb.h"
#include "genesis/training/v1/worker_service.pb.h"

namespace genesis {

// The replacement of FP16 modes on a machine without CUDA (precision.cpu_fallback).
enum class CpuFallback {
  kBf16,     // MIXED_BF16 if the processor multiplies BF16 natively, otherwise FP32.
  kFp32,     // FP32.
  kEmulate,  // The requested mode, emulated: 20 to 140 times slower than FP32. For fault injection.
};

// The action when jobs in reduced precision fail too often (precision.failure_watch).
enum class FailureWatchAction { kOff, kAdvise, kEnforce };

// Returns the precision that really runs, and the reason. A pure function of request, gate, policy
// and device:
//  * gate closed: FP32, whatever is requested.
//  * no mode named: as if MIXED_FP16 were requested.
//  * FP16 and MIXED_FP16 need CUDA with tensor cores (compute capability 7.0). Below that FP32.
//    Without CUDA they become MIXED_BF16 if the processor has native BF16 and the policy is
//    kBf16, otherwise FP32; only kEmulate runs them there.
//  * BF16 and MIXED_BF16 named by the user run on any CPU; without native BF16 the reason warns
//    that it is emulated and slower. On CUDA they need compute capability 8.0, otherwise FP32.
//  * AUTO stays AUTO if more than FP32 can be measured (AutoCandidates), and is settled by the
//    worker; otherwise FP32.
// `reason` starts with the mode's name; `refused` has one sentence for each mode that was requested
// or tried before and did not run.
training::v1::EffectivePrecision ComputeEffectivePrecision(training::v1::PrecisionMode requested,
                                                           const PrecisionGate& gate,
                                                           CpuFallback fallback,
                                                           const training::v1::DeviceInfo& device);

// Returns the modes that AUTO measures in addition to FP32: mixed ones that this device runs in
// hardware. Empty if the gate is closed.
std::vector<training::v1::PrecisionMode> AutoCandidates(const PrecisionGate& gate,
                                                        CpuFallback fallback,
                                                        const training::v1::DeviceInfo& device);

// Returns the modes to which a running job may change: all that ComputeEffectivePrecision would run
// unchanged, except MIXED_BF16 and BF16 if they are emulated and the job did not name them.
std::vector<training::v1::PrecisionMode> AllowedModes(const training::v1::PrecisionSpec& spec,
                                                      const PrecisionGate& gate,
                                                      CpuFallback fallback,
                                                      const training::v1::DeviceInfo& device);

// Returns true if this machine's processor multiplies BF16 natively: avx512_bf16, or amx_bf16, as
// reported by CPUID and enabled by the operating system (XCR0).
bool CpuHasNativeBf16();

// Returns the best instructions for matrix products on this processor: "amx_bf16", "avx512_bf16",
// "avx512", "avx2" or "baseline".
std::string CpuIsa();

}  // namespace genesis
