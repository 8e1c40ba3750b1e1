#include "tests/sanitizers/grpc_order.h"

#include <dlfcn.h>
#include <grpc/grpc.h>
#include <link.h>
#include <sanitizer/tsan_interface.h>

#include <cstdint>
#include <cstring>
#include <utility>
#include <vector>

namespace genesis {
namespace {

using Range = std::pair<uintptr_t, uintptr_t>;

int AddGrpc(dl_phdr_info* library, size_t, void* ranges) {
  if (strstr(library->dlpi_name, "/libgrpc") == nullptr &&
      strstr(library->dlpi_name, "/libgpr.") == nullptr) {
    return 0;
  }
  for (int i = 0; i < library->dlpi_phnum; ++i) {
    const ElfW(Phdr)& part = library->dlpi_phdr[i];
    if (part.p_type != PT_LOAD || (part.p_flags & PF_X) == 0) continue;
    const uintptr_t begin = library->dlpi_addr + part.p_vaddr;
    static_cast<std::vector<Range>*>(ranges)->emplace_back(begin, begin + part.p_memsz);
  }
  return 0;
}

std::vector<Range> GrpcCode() {
  std::vector<Range> ranges;
  dl_iterate_phdr(&AddGrpc, &ranges);
  return ranges;
}

char order;

}  // namespace

bool IsGrpc(const void* address) {
  static const auto* const code = new std::vector<Range>(GrpcCode());
  const auto place = reinterpret_cast<uintptr_t>(address);
  for (const auto& [begin, end] : *code) {
    if (place >= begin && place < end) return true;
  }
  return false;
}

void EnterGrpc() { __tsan_acquire(&order); }
void LeaveGrpc() { __tsan_release(&order); }

}  // namespace genesis

namespace {

template <typename Function>
Function* Real(Function*, const char* name) {
  return reinterpret_cast<Function*>(dlsym(RTLD_NEXT, name));
}

}  // namespace

// A thread that receives the end of an operation must see all writes before its start.

extern "C" grpc_call_error grpc_call_start_batch(grpc_call* call, const grpc_op* ops, size_t count,
                                                 void* tag, void* reserved) {
  static const auto real = Real(&grpc_call_start_batch, "grpc_call_start_batch");
  genesis::LeaveGrpc();
  return real(call, ops, count, tag, reserved);
}

extern "C" grpc_event grpc_completion_queue_next(grpc_completion_queue* queue,
                                                 gpr_timespec deadline, void* reserved) {
  static const auto real = Real(&grpc_completion_queue_next, "grpc_completion_queue_next");
  const grpc_event event = real(queue, deadline, reserved);
  genesis::EnterGrpc();
  return event;
}

extern "C" grpc_event grpc_completion_queue_pluck(grpc_completion_queue* queue, void* tag,
                                                  gpr_timespec deadline, void* reserved) {
  static const auto real = Real(&grpc_completion_queue_pluck, "grpc_completion_queue_pluck");
  const grpc_event event = real(queue, tag, deadline, reserved);
  genesis::EnterGrpc();
  return event;
}
