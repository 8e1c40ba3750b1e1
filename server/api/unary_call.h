#pragma once

#include <utility>

#include "server/api/api_gate.h"
#include "server/api/training_api.h"
#include "server/base/answer_once.h"
#include "server/base/callback.h"
#include "server/base/guard.h"
#include "server/base/request_check.h"

namespace genesis {

// A unary method of TrainingApi.
template <typename Request, typename Response>
using UnaryMember = void (TrainingApi::*)(const Caller&, const Request&, const Callback<Response>&);

// Runs an admitted unary call, for every transport. Validates the request first, and runs
// `callback` once even if the method throws or drops it.
template <typename Request, typename Response>
void CallUnary(TrainingApi* api, UnaryMember<Request, Response> member, const Caller& caller,
               const Request& request, Callback<Response> callback) {
  const Callback<Response> once = AnswerOnce(std::move(callback));
  const absl::Status made = Guarded(Request::descriptor()->name().c_str(), [&] {
    const absl::Status fit = CheckRequest(request);
    if (!fit.ok()) return once(fit);
    (api->*member)(caller, request, once);
  });
  if (!made.ok()) once(made);
}

}  // namespace genesis
