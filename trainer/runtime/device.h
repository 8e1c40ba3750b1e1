#pragma once

#include <string>

#include "genesis/training/v1/worker_service.pb.h"

namespace genesis {

// The device that this process computes on. `wanted` is "cpu", "cuda:<n>" (the process then sees
// this device alone, as cuda:0), or empty: the first CUDA device where a driver and LibTorch's CUDA
// library are there, else the processor. Loads that library, which takes seconds, only where there
// is a driver. `note` gets one sentence when a driver is there but cannot be used. Before any CUDA
// call.
training::v1::DeviceInfo DetectDevice(const std::string& wanted, std::string* note);

// For people, a line each: the LibTorch in use, and the device with what it can do.
std::string DescribeDevice(const training::v1::DeviceInfo& device);

// Whether FP32 products and convolutions on CUDA round their inputs to TF32; nothing on a CPU.
void SetTf32(bool on);

// Sets the number of threads for arithmetic and does everything once that is slow the first time,
// so that the first step of a job is as fast as the others.
void WarmUp(const training::v1::DeviceInfo& device, int threads);

}  // namespace genesis
