#pragma once

#include <functional>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"

namespace genesis::cli {

// A handler for Ctrl-C. While an action is set, Fire runs it instead of ending the program: a watch
// cancels its stream and prints that the job continues. Owned by main. Thread-safe: a signal thread
// fires while the command runs in another thread. Cannot fail.
class Interrupt {
 public:
  // The action must remain callable until Clear returns.
  void Set(std::function<void()> action) ABSL_LOCKS_EXCLUDED(mutex_);
  void Clear() ABSL_LOCKS_EXCLUDED(mutex_);
  // Runs the action. Returns false if none is set; the caller then ends the program.
  bool Fire() ABSL_LOCKS_EXCLUDED(mutex_);
  bool fired() const ABSL_LOCKS_EXCLUDED(mutex_);

 private:
  mutable absl::Mutex mutex_;
  std::function<void()> action_ ABSL_GUARDED_BY(mutex_);
  bool fired_ ABSL_GUARDED_BY(mutex_) = false;
};

// Blocks SIGINT in this thread and its future threads, and waits for it in a separate thread that
// runs until the program ends. `interrupt` must outlive that thread.
void StartSignalThread(Interrupt& interrupt);

}  // namespace genesis::cli
