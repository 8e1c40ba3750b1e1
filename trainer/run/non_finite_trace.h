#pragma once

#include <string>
#include <vector>

#include "trainer/models/model.h"

namespace genesis {

// While it lives, watches every operator of its thread, and of the autograd engine's threads that
// work for it, and keeps the first one that turned finite inputs into an output that is not finite.
// Other threads, such as the one that writes a checkpoint, are not looked at. LibTorch's modules
// have no forward hooks; operators have (at::RecordFunction), and the module is known by the
// parameter that the operator, or the one before it, took. Works for scripted modules too.
//
// Owner: a scope. Threads: the one that made it; one trace at a time in the process. Failure: none;
// looking at the numbers waits for the device.
class NonFiniteTrace {
 public:
  explicit NonFiniteTrace(const NamedTensors& parameters);
  ~NonFiniteTrace();
  NonFiniteTrace(const NonFiniteTrace&) = delete;
  NonFiniteTrace& operator=(const NonFiniteTrace&) = delete;

  // "encoder.0 (aten::linear)", or "" while all outputs were finite.
  static std::string Found();

 private:
  uint64_t handle_;
};

}  // namespace genesis
