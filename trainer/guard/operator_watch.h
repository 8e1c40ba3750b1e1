#pragma once

#include <ATen/record_function.h>

#include <memory>

namespace genesis {

// An `OperatorListener` receives each operator while an OperatorWatch lives. Threads of autograd
// call it while the thread that created the watch waits for them, so calls never overlap.
class OperatorListener {
 public:
  virtual ~OperatorListener() = default;
  // Called before the operator runs. The return value is passed to OnEnd.
  virtual std::unique_ptr<at::ObserverContext> OnStart(const at::RecordFunction& /*function*/) {
    return nullptr;
  }
  virtual void OnEnd(const at::RecordFunction& function, at::ObserverContext* context) = 0;
};

// An `OperatorWatch` reports, while it lives, the operators of its thread and of the autograd
// engine's threads that work for it, with inputs and outputs. It does not watch other threads, such
// as those that write checkpoints or gather batches. LibTorch's modules have no forward hooks, but
// operators do (at::RecordFunction).
//
// Owner: a scope. Threads: destroyed on the thread that created it; one at a time per process.
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
