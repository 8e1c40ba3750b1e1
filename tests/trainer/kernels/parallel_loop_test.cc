#include "trainer/kernels/parallel_loop.h"

#include <torch/torch.h>

#include <atomic>
#include <set>
#include <thread>
#include <vector>

#include "absl/synchronization/mutex.h"
#include "gtest/gtest.h"

namespace genesis {
namespace {

TEST(ParallelLoopTest, TakesEachIndexOnce) {
  for (const int64_t count : {0, 1, 7, 8, 9, 1000, 65537}) {
    for (const int64_t least : {1, 8, 100000}) {
      std::vector<std::atomic<int>> taken(count);
      ParallelLoop(count, least, [&](int64_t begin, int64_t end) {
        ASSERT_LE(0, begin);
        ASSERT_LE(begin, end);
        ASSERT_LE(end, count);
        for (int64_t i = begin; i < end; ++i) ++taken[i];
      });
      for (int64_t i = 0; i < count; ++i) ASSERT_EQ(taken[i], 1) << i << " of " << count;
    }
  }
}

TEST(ParallelLoopTest, RunsOnTheThreadsOfLibTorch) {
  const int threads = at::get_num_threads();
  at::set_num_threads(3);
  absl::Mutex mutex;
  std::set<std::thread::id> workers;
  ParallelLoop(3, 1, [&](int64_t /*begin*/, int64_t /*end*/) {
    const absl::MutexLock lock(&mutex);
    workers.insert(std::this_thread::get_id());
  });
  at::set_num_threads(threads);
  EXPECT_EQ(workers.size(), 3);
}

}  // namespace
}  // namespace genesis
