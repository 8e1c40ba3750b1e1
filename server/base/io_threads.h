#pragma once

#include <cstddef>
#include <deque>
#include <functional>
#include <thread>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"

namespace genesis {

// A few threads for tasks that block on a disk, so that gRPC's threads can serve other calls. The
// queue is unbounded: callers must limit what they post.
//
// Owner: the object whose tasks they run. Threads: any may Post. Failure: none; exceptions of tasks
// are caught, logged and counted.
class IoThreads {
 public:
  explicit IoThreads(int count);
  // Runs the queued tasks, then ends the threads.
  ~IoThreads();
  IoThreads(const IoThreads&) = delete;
  IoThreads& operator=(const IoThreads&) = delete;

  void Post(std::function<void()> task);
  // Returns the number of queued tasks.
  size_t waiting() const;

 private:
  void Loop();

  mutable absl::Mutex mutex_;
  std::deque<std::function<void()>> waiting_ ABSL_GUARDED_BY(mutex_);
  bool stopping_ ABSL_GUARDED_BY(mutex_) = false;
  std::vector<std::thread> threads_;
};

}  // namespace genesis
