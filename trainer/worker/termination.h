#pragma once

#include <functional>
#include <thread>

namespace genesis {

// Calls `on_signal` on a thread of its own for each SIGTERM and SIGINT while it lives, so that the
// handler may take locks and log. BlockTerminationSignals must have run first.
//
// Owner: the one who wants to know. Threads: any. Failure: none.
class TerminationWatch {
 public:
  explicit TerminationWatch(std::function<void()> on_signal);
  ~TerminationWatch();
  TerminationWatch(const TerminationWatch&) = delete;
  TerminationWatch& operator=(const TerminationWatch&) = delete;

 private:
  std::thread thread_;
};

// Keeps SIGTERM and SIGINT from ending the process, for this thread and all that it starts from
// now on. Call it first in main.
void BlockTerminationSignals();

// The daemon starts a worker so that the kernel ends it with the daemon: without a job it is of no
// use to the next one. From here on it lives longer. For the calling thread, which is the main one.
void OutliveParent();

}  // namespace genesis
