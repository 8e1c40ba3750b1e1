// The fork and join of OpenMP's parallel regions, reported to ThreadSanitizer, which cannot see
// libgomp's barriers because they are futexes.

#include <dlfcn.h>
#include <sanitizer/tsan_interface.h>

namespace {

struct Region {
  void (*body)(void*);
  void* data;
};

void RunBody(void* pointer) {
  auto& region = *static_cast<Region*>(pointer);
  __tsan_acquire(&region);
  region.body(region.data);
  __tsan_release(&region);
}

}  // namespace

// Wraps the function that compilers call for `#pragma omp parallel` (libgomp, "Implementing
// PARALLEL construct").
extern "C" void GOMP_parallel(void (*body)(void*), void* data, unsigned threads, unsigned flags) {
  using Parallel = void (*)(void (*)(void*), void*, unsigned, unsigned);
  static const auto real = reinterpret_cast<Parallel>(dlsym(RTLD_NEXT, "GOMP_parallel"));
  Region region = {body, data};
  __tsan_release(&region);
  real(&RunBody, &region, threads, flags);
  __tsan_acquire(&region);
}
