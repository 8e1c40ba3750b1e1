#pragma once

#include "server/api/api_gate.h"
#include "server/auth/request_rate.h"
#include "server/auth/token_authenticator.h"
#include "server/base/io_threads.h"
#include "server/http/http_message.h"

namespace genesis {

// The handler of /dashboard/session: POST {"code": "..."} exchanges a code of CreateLoginCode for
// the token of a session, {"token": "...", "expire_time": "..."}; DELETE ends the session of the
// header "authorization". Both are written to the audit log, without code and token.
//
// Owner: the daemon; outlives the server. Threads: called on the server's thread; works on another,
// because the audit log is a file. Failure: UNAUTHENTICATED for a code that is not valid now, and
// RESOURCE_EXHAUSTED for an address that tries more than one a second, on average over ten seconds.
class SignIn {
 public:
  SignIn(TokenAuthenticator* authenticator, const ApiGate* gate);

  static bool IsHere(const HttpRequest& request);
  void Handle(const HttpRequest& request, const Respond& respond);

 private:
  HttpResponse Start(const HttpRequest& request);
  HttpResponse End(const HttpRequest& request);

  TokenAuthenticator* const authenticator_;
  const ApiGate* const gate_;
  RequestRate rate_;
  IoThreads threads_{1};  // Last, because its tasks use the members above.
};

}  // namespace genesis
