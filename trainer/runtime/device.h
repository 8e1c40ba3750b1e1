#pragma once

#include <string>

#include "genesis/training/v1/worker_service.pb.h"

namespace genesis {

// Returns the device that this process computes on. `wanted` is "cpu", "cuda:<n>" (the process then
// sees only this device, as cuda:0), or empty for the first CUDA device. Without a driver or
// LibTorch's CUDA library it is the processor. Loads that library, which takes seconds, only
// if there is a driver. If a driver exists but cannot be used, `note` gets one sentence. Call
// before any CUDA call.
training::v1::DeviceInfo DetectDevice(const std::string& wanted, std::string* note);

// Returns lines that describe LibTorch and the device with its capabilities, for people.
std::string DescribeDevice(const training::v1::DeviceInfo& device);

// Sets whether FP32 products and convolutions on CUDA round their inputs to TF32. No effect on a
// CPU.
void SetTf32(bool on);

// Sets the number of threads for arithmetic and triggers everything that is slow the first time, so
// that the first step of a job is as fast as the others.
void WarmUp(const training::v1::DeviceInfo& device, int threads);

}  // namespace genesis
