#pragma once

#include <cstdint>

namespace genesis {

// Makes idle threads of the arithmetic library sleep instead of spin, by starting the program again
// (same process id) with OMP_WAIT_POLICY=PASSIVE: the library reads it before main. Spinning
// threads keep the processor from whom they wait for; with other programs on the same two cores a
// small model trained 10 times slower. Does nothing when the variable is set. Call it first in
// main.
void RestartWithPassiveWaiting(char** argv);

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
