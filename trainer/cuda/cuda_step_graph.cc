// libgenesis_cuda.so: the code that needs CUDA headers. genesis-worker loads it on machines with an
// NVIDIA driver, after libtorch_cuda.so, whose libraries define all symbols that it uses. It is
// therefore linked with none of them and runs with any installation of that library.
#include <ATen/cuda/CUDAGraph.h>
#include <c10/cuda/CUDACachingAllocator.h>
#include <c10/cuda/CUDAFunctions.h>
#include <c10/cuda/CUDAGuard.h>

#include "trainer/cuda/plugin.h"

namespace genesis {
namespace {

class CudaStepGraph : public StepGraph {
 public:
  void Capture(const std::function<void()>& work) override {
    const c10::DeviceIndex device = c10::cuda::current_device();
    // Sync: no earlier work may run into the capture.
    c10::cuda::device_synchronize();
    const c10::cuda::CUDAStreamGuard stream(c10::cuda::getStreamFromPool());
    const at::cuda::MempoolId_t pool = at::cuda::graph_pool_handle();
    // In this mode, the thread that prepares batches may allocate pinned memory during the capture.
    graph_.capture_begin(pool, cudaStreamCaptureModeThreadLocal);
    try {
      work();
    } catch (...) {
      Abandon(device, pool);
      throw;
    }
    graph_.capture_end();
  }

  void Replay() override { graph_.replay(); }

 private:
  void Abandon(c10::DeviceIndex device, at::cuda::MempoolId_t pool) {
    try {
      graph_.capture_end();
    } catch (const c10::Error&) {
      // A broken capture cannot be ended, and the allocator would keep freed memory for it.
      try {
        c10::cuda::CUDACachingAllocator::endAllocateToPool(device, pool);
      } catch (const c10::Error&) {
        // The allocator no longer allocates to this pool, so there is nothing to end.
      }
    }
  }

  at::cuda::CUDAGraph graph_;
};

}  // namespace
}  // namespace genesis

genesis::StepGraph* GenesisMakeCudaStepGraph() { return new genesis::CudaStepGraph; }
