#pragma once

#include <functional>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"

namespace genesis::cli {

// Ctrl-C as a call. While an action is set, Fire runs it instead of ending the program: a watch
// cancels its stream and prints that the job goes on. Owned by main. Thread-safe: a signal thread
// fires while the command runs in another. Cannot fail.
class Interrupt {
 public:
  // `action` must stay callable until Clear returns.
  void Set(std::function<void()> action) ABSL_LOCKS_EXCLUDED(mutex_);
  void Clear() ABSL_LOCKS_EXCLUDED(mutex_);
  // Returns false if no action is set; the caller then ends the program.
  bool Fire() ABSL_LOCKS_EXCLUDED(mutex_);
  bool fired() const ABSL_LOCKS_EXCLUDED(mutex_);

 private:
  mutable absl::Mutex mutex_;
  std::function<void()> action_ ABSL_GUARDED_BY(mutex_);
  bool fired_ ABSL_GUARDED_BY(mutex_) = false;
};

// Blocks SIGINT in this thread and those it starts, and waits for it in a separate thread, which
// lives until the program ends. `interrupt` must outlive the program's other threads.
void StartSignalThread(Interrupt& interrupt);

}  // namespace genesis::cli
