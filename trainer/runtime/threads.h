#pragma once

#include <cstdint>

namespace genesis {

// Returns the number of threads for a job whose largest piece of work is `operations`
// floating-point operations: one per 10^9 operations, at least 1 and at most `available`. Depends
// on nothing else, so a job sums in the same order wherever the same number is available.
int ThreadsFor(int64_t operations, int available);

// A guard that sets ThreadsFor() threads while it lives. Owner: a scope; one at a time per process.
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
