#pragma once

#include <cstdint>

namespace genesis {

// Threads for a job whose largest piece of work is `operations` floating-point operations: no more
// than pay for their coordination, at most `available`. Depends on the job alone, so that the same
// job adds in the same order every time.
int ThreadsFor(int64_t operations, int available);

// Uses ThreadsFor while it lives. Owner: a scope. Threads: one at a time in the process.
class ThreadLimit {
 public:
  explicit ThreadLimit(int64_t operations);
  ~ThreadLimit();
  ThreadLimit(const ThreadLimit&) = delete;
  ThreadLimit& operator=(const ThreadLimit&) = delete;

 private:
  const int before_;
};

}  // namespace genesis
