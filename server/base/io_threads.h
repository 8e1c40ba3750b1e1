#pragma once

#include <cstddef>
#include <deque>
#include <functional>
#include <thread>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"

namespace genesis {

// A few threads for tasks that block on a disk, so that gRPC's threads serve other calls meanwhile.
// The queue is unbounded: the posting code bounds it.
//
// Owner: ReplayStore. Threads: Post from any. Failure: none; exceptions of tasks are caught, logged
// and counted.
class IoThreads {
 public:
  explicit IoThreads(int count);
  // Runs the queued tasks, then ends the threads.
  ~IoThreads();
  IoThreads(const IoThreads&) = delete;
  IoThreads& operator=(const IoThreads&) = delete;

  void Post(std::function<void()> task);
  // Number of queued tasks.
  size_t waiting() const;

 private:
  void Loop();

  mutable absl::Mutex mutex_;
  std::deque<std::function<void()>> waiting_ ABSL_GUARDED_BY(mutex_);
  bool stopping_ ABSL_GUARDED_BY(mutex_) = false;
  std::vector<std::thread> threads_;
};

}  // namespace genesis
