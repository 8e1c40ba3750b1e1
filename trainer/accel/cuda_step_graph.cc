// libgenesis_cuda.so: what needs the headers of CUDA. genesis-worker loads it on machines with an
// NVIDIA driver, after libtorch_cuda.so, in whose libraries it finds all that it calls; so it is
// linked with none, and runs wherever that library is.
#include <ATen/cuda/CUDAGraph.h>
#include <c10/cuda/CUDACachingAllocator.h>
#include <c10/cuda/CUDAFunctions.h>
#include <c10/cuda/CUDAGuard.h>

#include "trainer/accel/plugin.h"

namespace genesis {
namespace {

class CudaStepGraph : public StepGraph {
 public:
  void Capture(const std::function<void()>& work) override {
    const c10::DeviceIndex device = c10::cuda::current_device();
    // Sync: nothing that was asked for before may run into the capture.
    c10::cuda::device_synchronize();
    const c10::cuda::CUDAStreamGuard stream(c10::cuda::getStreamFromPool());
    const at::cuda::MempoolId_t pool = at::cuda::graph_pool_handle();
    // The mode lets the thread that prepares batches take pinned memory meanwhile.
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
        // It had been told.
      }
    }
  }

  at::cuda::CUDAGraph graph_;
};

}  // namespace
}  // namespace genesis

genesis::StepGraph* GenesisMakeCudaStepGraph() { return new genesis::CudaStepGraph; }
