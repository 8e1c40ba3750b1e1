#pragma once

#include <cstdint>
#include <string>

#include "genesis/training/v1/worker_service.pb.h"
#include "trainer/runtime/run_observer.h"

namespace genesis {

// Profiles the steps that JobSpec.trace asks for, with PyTorch's profiler (kineto): every operation
// on the CPU, every kernel and copy on the GPU, and the parts of a step (draw, forward, backward,
// update). Under NVIDIA Nsight, which sets NVTX_INJECTION64_PATH, those parts are NVTX ranges of
// every step instead.
//
// Owner: the run. Threads: that of the run. Failure: none; what cannot be traced is a line in the
// log, for a job is worth more than its profile.
class StepTrace {
 public:
  // The folder of checkpoints is there when the trace is written.
  StepTrace(const training::v1::StartJob& start, bool cuda, RunObserver& observer);
  // Ends what is under way, without a file.
  ~StepTrace();
  StepTrace(const StepTrace&) = delete;
  StepTrace& operator=(const StepTrace&) = delete;

  // Before and after each step.
  void Begin(int64_t step);
  void End(int64_t step);

 private:
  void Start();
  void Write();

  const int64_t first_;  // 0 for none.
  const int64_t last_;
  const std::string path_;
  const bool cuda_;
  RunObserver& observer_;
  bool tracing_ = false;
  bool ranges_ = false;  // For Nsight.
};

}  // namespace genesis
