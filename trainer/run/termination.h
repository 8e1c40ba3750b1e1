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

// Whether the kernel ends this process when the one that started it ends. Of the calling thread, so
// it is called on the main one.
void SetEndWithParent(bool wanted);

}  // namespace genesis
