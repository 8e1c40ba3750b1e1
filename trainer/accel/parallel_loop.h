#pragma once

#include <c10/util/FunctionRef.h>

#include <cstdint>

namespace genesis {

// Calls loop(begin, end) for parts of [0, count), by LibTorch's threads, which each take `least`
// at least. In place of at::parallel_for, a template whose OpenMP would have to be linked into this
// program, while a process may have only one: LibTorch's.
void ParallelLoop(int64_t count, int64_t least, c10::function_ref<void(int64_t, int64_t)> loop);

}  // namespace genesis
