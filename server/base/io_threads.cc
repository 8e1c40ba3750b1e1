#include "server/base/io_threads.h"

#include <utility>

#include "server/base/guard.h"

namespace genesis {

IoThreads::IoThreads(int count) {
  for (int i = 0; i < count; ++i) threads_.emplace_back([this] { Loop(); });
}

IoThreads::~IoThreads() {
  {
    absl::MutexLock lock(&mutex_);
    stopping_ = true;
  }
  for (std::thread& thread : threads_) thread.join();
}

void IoThreads::Post(std::function<void()> task) {
  absl::MutexLock lock(&mutex_);
  waiting_.push_back(std::move(task));
}

size_t IoThreads::waiting() const {
  absl::MutexLock lock(&mutex_);
  return waiting_.size();
}

void IoThreads::Loop() {
  const auto has_news = [this]() ABSL_SHARED_LOCKS_REQUIRED(mutex_) {
    return stopping_ || !waiting_.empty();
  };
  for (;;) {
    std::function<void()> task;
    {
      absl::MutexLock lock(&mutex_);
      mutex_.Await(absl::Condition(&has_news));
      if (waiting_.empty()) return;
      task = std::move(waiting_.front());
      waiting_.pop_front();
    }
    // If the task throws, the objects it holds notify the caller: AnswerOnce or its stream.
    Guarded("a task that waits for a disk", task).IgnoreError();
  }
}

}  // namespace genesis
