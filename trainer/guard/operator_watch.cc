#include "trainer/guard/operator_watch.h"

#include <c10/util/Exception.h>

namespace genesis {
namespace {

// The callbacks of at::RecordFunction carry no user context.
OperatorListener* active = nullptr;

std::unique_ptr<at::ObserverContext> OnStart(const at::RecordFunction& function) {
  return active->OnStart(function);
}

void OnEnd(const at::RecordFunction& function, at::ObserverContext* context) {
  active->OnEnd(function, context);
}

}  // namespace

OperatorWatch::OperatorWatch(OperatorListener& listener) {
  TORCH_CHECK(active == nullptr, "operators are being watched already");
  active = &listener;
  handle_ = at::addThreadLocalCallback(at::RecordFunctionCallback(OnStart, OnEnd)
                                           .needsInputs(true)
                                           .needsOutputs(true)
                                           .scopes({at::RecordScope::FUNCTION}));
}

OperatorWatch::~OperatorWatch() {
  at::removeCallback(handle_);
  active = nullptr;
}

}  // namespace genesis
