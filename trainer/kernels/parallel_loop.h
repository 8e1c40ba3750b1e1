#pragma once

#include <c10/util/FunctionRef.h>

#include <cstdint>

namespace genesis {

// Calls loop(begin, end) for parts of [0, count) in LibTorch's threads, each of about `least` items
// or more. Replaces at::parallel_for, a template that would link OpenMP into this program, whereas
// a process may have only one OpenMP: LibTorch's.
void ParallelLoop(int64_t count, int64_t least, c10::function_ref<void(int64_t, int64_t)> loop);

}  // namespace genesis
