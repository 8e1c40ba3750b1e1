#pragma once

#include <string>
#include <vector>

#include "config/precision/gate.h"
#include "config/precision/mode.h"
#include "genesis/training/v1/job.pb.h"
#include "genesis/training/v1/worker_service.pb.h"

namespace genesis {

// The replacement for FP16 modes on a machine without CUDA (precision.cpu_fallback).
enum class CpuFallback {
  kBf16,     // MIXED_BF16 if the processor multiplies BF16 natively, otherwise FP32.
  kFp32,     // FP32.
  kEmulate,  // The requested mode, emulated: 20 to 140 times slower than FP32. For fault injection.
};

// The action if too many jobs in reduced precision fail (precision.failure_watch).
enum class FailureWatchAction { kOff, kAdvise, kEnforce };

// Returns the precision that a job actually runs in, and the reason. Depends only on the request,
// the gate, the policy and the device:
//  * If the gate is closed, here or on the device's host: FP32, whatever is requested.
//  * If no mode is named: as if MIXED_FP16 were requested.
//  * FP16 and MIXED_FP16 need CUDA with tensor cores (compute capability 7.0). Below that: FP32.
//    Without CUDA, they become MIXED_BF16 if the processor has native BF16 and the policy is
//    kBf16, otherwise FP32. Only kEmulate runs them there.
//  * BF16 and MIXED_BF16 run on any CPU if the user named them. Without native BF16 the reason
//    warns that it is emulated and slower. On CUDA they need compute capability 8.0, otherwise
//    FP32.
//  * AUTO stays AUTO, for the worker to choose, if it can measure more than FP32 (AutoCandidates),
//    otherwise FP32.
// `reason` starts with the mode's name; `refused` says why the requested mode does not run.
training::v1::EffectivePrecision ComputeEffectivePrecision(training::v1::PrecisionMode requested,
                                                           const PrecisionGate& gate,
                                                           CpuFallback fallback,
                                                           const training::v1::DeviceInfo& device);

// Returns the modes that AUTO measures in addition to FP32: the mixed modes that the device runs in
// hardware and, on a CPU with kEmulate, MIXED_FP16. Empty if the gate is closed.
std::vector<training::v1::PrecisionMode> AutoCandidates(const PrecisionGate& gate,
                                                        CpuFallback fallback,
                                                        const training::v1::DeviceInfo& device);

// Returns the modes in which a job may run: for AUTO, FP32 and AutoCandidates; otherwise all modes
// that ComputeEffectivePrecision keeps, except emulated BF16 modes that the job did not name.
std::vector<training::v1::PrecisionMode> AllowedModes(const training::v1::PrecisionSpec& spec,
                                                      const PrecisionGate& gate,
                                                      CpuFallback fallback,
                                                      const training::v1::DeviceInfo& device);

// Returns true if this machine's processor multiplies BF16 natively, with avx512_bf16 or amx_bf16,
// as reported by CPUID and enabled by the operating system (XCR0).
bool CpuHasNativeBf16();

// Returns the first instruction set of this list that the processor has, for matrix products:
// "amx_bf16", "avx512_bf16", "avx512", "avx2", "baseline".
std::string CpuIsa();

}  // namespace genesis
