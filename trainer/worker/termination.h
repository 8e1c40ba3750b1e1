#pragma once

#include <functional>
#include <thread>

namespace genesis {

// A watch that calls `on_signal` in a background thread for each SIGTERM and SIGINT while it lives,
// so that the callback may take locks and log. BlockTerminationSignals must have run first.
//
// Threads: any. Failure: none.
class TerminationWatch {
 public:
  explicit TerminationWatch(std::function<void()> on_signal);
  ~TerminationWatch();
  TerminationWatch(const TerminationWatch&) = delete;
  TerminationWatch& operator=(const TerminationWatch&) = delete;

 private:
  std::thread thread_;
};

// Blocks SIGTERM and SIGINT in this thread and in all threads that it starts later. Call it first
// in main.
void BlockTerminationSignals();

// Lets the worker outlive the daemon. Until then the kernel ends both together, because a worker
// without a job is of no use to the next daemon. Call on the main thread.
void OutliveParent();

}  // namespace genesis
