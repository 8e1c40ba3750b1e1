#include "trainer/runtime/threads.h"

#include <ATen/Parallel.h>

#include <algorithm>

namespace genesis {
namespace {

// Below this size, waking a second thread, some hundred times a step, costs more than it saves: a
// world model of 0.7 GFLOP took 1.3 to 2 times as long with two threads as with one, one of 2.7
// GFLOP equally long (docs/benchmarks/optimizations.md).
constexpr int64_t kOperationsPerThread = 1'000'000'000;

}  // namespace

int ThreadsFor(int64_t operations, int available) {
  const int64_t useful = std::max<int64_t>(1, operations / kOperationsPerThread);
  return static_cast<int>(std::min<int64_t>(useful, available));
}

ThreadLimit::ThreadLimit(int64_t operations) : before_(at::get_num_threads()) {
  at::set_num_threads(ThreadsFor(operations, before_));
}

ThreadLimit::~ThreadLimit() { at::set_num_threads(before_); }

}  // namespace genesis
