#pragma once

#include <ATen/record_function.h>

#include <memory>

namespace genesis {

// Who is told of each operator while an OperatorWatch lives. The autograd engine's threads call it
// while the thread that made the watch waits for them, so never two at a time.
class OperatorListener {
 public:
  virtual ~OperatorListener() = default;
  // Its return value comes back at the operator's end.
  virtual std::unique_ptr<at::ObserverContext> OnStart(const at::RecordFunction& /*function*/) {
    return nullptr;
  }
  virtual void OnEnd(const at::RecordFunction& function, at::ObserverContext* context) = 0;
};

// While it lives, tells of the operators of its thread and of the autograd engine's threads that
// work for it, with inputs and outputs. Other threads, such as the one that writes a checkpoint or
// the one that makes batches, are not watched. LibTorch's modules have no forward hooks; operators
// have (at::RecordFunction), those of scripted modules too.
//
// Owner: a scope. Threads: ends on the thread that made it; one at a time in the process.
class OperatorWatch {
 public:
  explicit OperatorWatch(OperatorListener& listener);
  ~OperatorWatch();
  OperatorWatch(const OperatorWatch&) = delete;
  OperatorWatch& operator=(const OperatorWatch&) = delete;

 private:
  at::CallbackHandle handle_;
};

}  // namespace genesis
