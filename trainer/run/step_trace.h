#pragma once

#include <cstdint>
#include <string>

#include "genesis/training/v1/worker_service.pb.h"
#include "trainer/runtime/run_observer.h"

namespace genesis {

// A profile of the steps that JobSpec.trace names, taken with PyTorch's profiler (kineto): every
// operation on the CPU, every kernel and copy on the GPU, and the parts of a step (draw, forward,
// backward, update). Under NVIDIA Nsight, which sets NVTX_INJECTION64_PATH, these parts become NVTX
// ranges of every step instead.
//
// Owner: the run. Threads: that of the run. Failure: none; a trace that fails is logged, because a
// failed profile must not end a job.
class StepTrace {
 public:
  // The checkpoint folder must exist when the trace is written.
  StepTrace(const training::v1::StartJob& start, bool cuda, RunObserver& observer);
  // Stops a trace in progress without writing a file.
  ~StepTrace();
  StepTrace(const StepTrace&) = delete;
  StepTrace& operator=(const StepTrace&) = delete;

  // Call before each step; End after it.
  void Begin(int64_t step);
  void End(int64_t step);

 private:
  void Start();
  void Write();

  const int64_t first_;  // First step to trace; 0 for none.
  const int64_t last_;
  const std::string path_;
  const bool cuda_;
  RunObserver& observer_;
  bool tracing_ = false;
  bool ranges_ = false;  // Set if NVTX ranges for Nsight are enabled.
};

}  // namespace genesis
