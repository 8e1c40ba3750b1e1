#include "trainer/checkpoint/state_copy.h"

#include <sys/mman.h>

#include <chrono>
#include <cstdint>
#include <cstring>

#include "c10/core/impl/VirtualGuardImpl.h"

namespace genesis {
namespace {

// Size in bytes below which a tensor is copied immediately: a page.
constexpr size_t kLeast = 4096;

// Requests large pages, because new memory costs a fault per page at the first write. A kernel
// without large pages ignores the request.
void AskForLargePages(const at::Tensor& tensor) {
  constexpr uintptr_t kLarge = uintptr_t{2} << 20;
  const auto begin = reinterpret_cast<uintptr_t>(tensor.const_data_ptr());
  const uintptr_t first = (begin + kLarge - 1) / kLarge * kLarge;
  const uintptr_t end = (begin + tensor.nbytes()) / kLarge * kLarge;
  if (first < end) madvise(reinterpret_cast<void*>(first), end - first, MADV_HUGEPAGE);
}

}  // namespace

StateCopy::~StateCopy() {
  if (thread_.joinable()) thread_.join();
}

at::Tensor StateCopy::Add(const at::Tensor& tensor) {
  const at::Tensor from = tensor.detach();
  if (from.is_cuda()) {
    gpu_ = from.device();
    return at::empty_like(from, from.options().device(at::kCPU).pinned_memory(true))
        .copy_(from, /*non_blocking=*/true);
  }
  if (!from.is_cpu() || from.nbytes() < kLeast || !from.is_non_overlapping_and_dense()) {
    return from.to(at::kCPU, /*non_blocking=*/false, /*copy=*/true);
  }
  at::Tensor to = at::empty_strided(from.sizes(), from.strides(), from.options());
  AskForLargePages(to);
  parts_.emplace_back(from, to);
  return to;
}

void StateCopy::Start() {
  if (gpu_) {
    gpu_done_.emplace(gpu_->type());
    gpu_done_->record(c10::impl::VirtualGuardImpl(gpu_->type()).getStream(*gpu_));
  }
  thread_ = std::thread([this] {
    // Use memcpy: copy_ would start a second team of OpenMP threads next to that of the step.
    for (const auto& [from, to] : parts_) {
      std::memcpy(to.mutable_data_ptr(), from.const_data_ptr(), from.nbytes());
    }
    parts_.clear();
    done_.Notify();
  });
}

void StateCopy::Wait() const {
  done_.WaitForNotification();
  if (gpu_done_) gpu_done_->synchronize();
}

void StateCopy::HoldUpdate() {
  const auto begin = std::chrono::steady_clock::now();
  done_.WaitForNotification();
  held_seconds_.store(
      std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count(),
      std::memory_order_relaxed);
}

}  // namespace genesis
