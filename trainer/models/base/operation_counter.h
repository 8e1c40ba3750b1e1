#pragma once

#include <ATen/record_function.h>

#include <cstdint>

namespace genesis {

// An OperationCounter adds up the floating-point operations of the matrix products and convolutions
// that the calling thread runs while it lives.
//
// Owner: a scope. Threads: the calling one. Failure: none.
class OperationCounter {
 public:
  OperationCounter();
  ~OperationCounter() { at::removeCallback(handle_); }
  OperationCounter(const OperationCounter&) = delete;
  OperationCounter& operator=(const OperationCounter&) = delete;

  int64_t operations() const;

 private:
  at::CallbackHandle handle_;
};

}  // namespace genesis
