#pragma once

#include <utility>

#include "server/answer.h"
#include "server/api/answer_once.h"
#include "server/api/api_gate.h"
#include "server/api/request_check.h"
#include "server/api/training_api.h"
#include "server/guard.h"

namespace genesis {

// A unary method of TrainingApi.
template <typename Request, typename Response>
using UnaryMember = void (TrainingApi::*)(const Caller&, const Request&, const Answer<Response>&);

// Makes a unary call that was admitted, for every transport: the request's shape is checked first,
// and `answer` is given once, whatever the method throws or forgets.
template <typename Request, typename Response>
void CallUnary(TrainingApi* api, UnaryMember<Request, Response> member, const Caller& caller,
               const Request& request, Answer<Response> answer) {
  const Answer<Response> once = AnswerOnce(std::move(answer));
  const absl::Status made = Guarded(Request::descriptor()->name().c_str(), [&] {
    const absl::Status fit = CheckRequest(request);
    if (!fit.ok()) return once(fit);
    (api->*member)(caller, request, once);
  });
  if (!made.ok()) once(made);
}

}  // namespace genesis
