#pragma once

#include <memory>
#include <string>
#include <unordered_map>

#include "trainer/guard/operator_watch.h"
#include "trainer/models/base/model.h"

namespace genesis {

// A `NonFiniteTrace` records, while it lives, the first operator observed by an OperatorWatch that
// turned finite inputs into an output that is not finite. The module is identified by the last
// parameter that this operator or an earlier one used.
//
// Owner: a scope. Threads: as OperatorWatch. Failure: none; reading the numbers waits for the
// device.
class NonFiniteTrace : private OperatorListener {
 public:
  explicit NonFiniteTrace(const NamedTensors& parameters);

  // The operator found, as "encoder.0 (aten::linear)", or "" if all outputs were finite.
  const std::string& found() const { return found_; }

 private:
  std::unique_ptr<at::ObserverContext> OnStart(const at::RecordFunction& function) override;
  void OnEnd(const at::RecordFunction& function, at::ObserverContext* context) override;

  std::unordered_map<const void*, std::string> modules_;  // Key: address of a parameter's data.
  std::string last_module_;
  std::string found_;
  bool looking_ = false;  // Set while its own operators run, which are not checked.
  OperatorWatch watch_;
};

}  // namespace genesis
